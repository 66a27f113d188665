// A transport's report about itself, as plain data. The code that shows it (transport/process/report_json.h,
// transport/process/metrics_text.h, DPDK's telemetry) knows no back-end. Taken under exclusive access; an independent
// value afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/duration_histogram.h"
#include "transport/channel/channel_counters.h"
#include "transport/channel/operation_times.h"

namespace gloo_bypass {

// A number of the port or device that only this back-end has; its texts are constants.
struct PortFigure {
  const char* name;  // in JSON, text and telemetry
  const char*
      metric;  // without gloo_bypass_; one that ends in _total is a counter, any other a gauge; null: it is none
  const char* help;
  std::uint64_t value;
};

struct ChannelReport {
  std::uint64_t number = 0;  // the channel's name in this process
  std::string peer;          // the peer's own description; may be empty before it connects
  int localRank = -1, peerRank = -1;
  ChannelCounters counters;
  std::optional<PathFigures> path;  // if the back-end knows it
};

struct TransportReport {
  std::string description;                         // what it runs over: "memif in /tmp/x"
  ChannelCounters total;                           // of all channels, closed ones included
  std::uint64_t bytesSent = 0, bytesReceived = 0;  // by the port, as far out as it can count
  std::vector<PortFigure> port;
  std::vector<ChannelReport> channels;          // open ones
  std::optional<DurationHistogram> roundTrips;  // as acknowledgements show them; only if latencies are measured
  std::optional<OperationTimes> operations;     // the same
};

}  // namespace gloo_bypass
