// The counters of one channel, for every back-end, and the one table that describes them. Sums, JSON, text,
// Prometheus's metrics and DPDK's telemetry are all made from the table, so a new counter needs a field and a row.
//
// Pure. Thread: counters are plain fields, changed under exclusive access; the table is constant.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/time.h"

namespace gloo_bypass {

struct ChannelCounters {
  std::uint64_t messagesSent = 0, messagesReceived = 0;
  std::uint64_t payloadBytesSent = 0, payloadBytesReceived = 0;  // first transmissions only
  std::uint64_t packetsSent = 0, packetsReceived = 0;
  std::uint64_t wireBytesSent = 0, wireBytesReceived = 0;  // datagrams, with our header
  std::uint64_t retransmits = 0;
  std::uint64_t spuriousRetransmits = 0;  // of these: an earlier copy had arrived, as far as acknowledgements show
  std::uint64_t tailLossProbes = 0;       // silence of some two round trips: an acknowledgement was requested
  std::uint64_t retransmitTimeouts = 0;   // no answer: requested again
  // Repair frames, frames recovered from the peer's, and frames retransmitted although repair frames covered them.
  std::uint64_t repairFramesSent = 0, repairFramesReceived = 0, framesRecovered = 0, framesUnrepaired = 0;
  std::uint64_t duplicatesReceived = 0;
  std::uint64_t corruptedReceived = 0;  // bad checksum: dropped
  std::uint64_t invalidReceived = 0;    // fields out of range, or of another version: dropped
  std::uint64_t eagerMessages = 0, rendezvousMessages = 0, bufferedSends = 0, stagedReceives = 0;
};

// A session's current view of its path. Not summed.
struct PathFigures {
  Duration smoothedRtt{0}, minRtt{0};  // 0: not measured yet
  std::uint64_t congestionWindowBytes = 0;
  std::size_t datagramBytes = 0;  // largest size sent
};

struct ChannelCounterRow {
  std::uint64_t ChannelCounters::* field;
  const char* name;    // in JSON, text and telemetry
  const char* metric;  // over all channels, without gloo_bypass_
  const char* help;
  // For each channel; null: none, since a metric for every peer is expensive.
  const char* channelMetric = nullptr;
  const char* channelHelp = nullptr;
};
std::span<const ChannelCounterRow> channelCounterRows();

ChannelCounters& operator+=(ChannelCounters& sum, const ChannelCounters& c);

}  // namespace gloo_bypass
