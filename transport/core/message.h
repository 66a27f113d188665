// What a message is to its sender and receiver: the vocabulary that the protocol core, every back-end and
// the Gloo adapter share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/flat_map.h"
#include "transport/base/time.h"

namespace gloo_bypass {

// Two name spaces of tags: Gloo's unbound buffers (64-bit slots) and its older bound buffers (int slots).
enum class MessageKind : std::uint8_t { kUnbound = 0, kBound = 1 };

struct MessageKey {
  MessageKind kind = MessageKind::kUnbound;
  std::uint64_t tag = 0;
  bool operator==(const MessageKey&) const = default;
};

struct MessageKeyHash {
  std::uint64_t operator()(const MessageKey& key) const {
    return mixBits(key.tag + 0x9e3779b97f4a7c15ull * (static_cast<std::uint64_t>(key.kind) + 1));
  }
};

// Chosen by the caller, unique among the channel's live operations of that direction (a pointer, say).
using OperationToken = std::uint64_t;

struct SendRequest {
  OperationToken token = 0;
  MessageKey key;
  const std::byte* data = nullptr;  // readable until onSendComplete or cancelSend
  std::size_t length = 0;           // zero is a message like any other
  std::uint64_t remoteOffset = 0;   // where in a persistent receive's region it goes; 0 for unbound
};

struct ReceiveRequest {
  OperationToken token = 0;
  MessageKey key;
  std::byte* data = nullptr;  // writable until onReceiveComplete or cancelReceive
  std::size_t capacity = 0;   // a longer message fails the CHANNEL with kMessageTooLong, as Gloo's TCP does
  // A bound buffer: stays posted, and every message of the key is written at data + its remoteOffset; one
  // onReceiveComplete for each. At most one persistent receive a key, and no other receive with it.
  bool persistent = false;
};

struct ChannelCounters {
  std::uint64_t messagesSent = 0, messagesReceived = 0;
  std::uint64_t payloadBytesSent = 0, payloadBytesReceived = 0;  // first transmissions only
  std::uint64_t packetsSent = 0, packetsReceived = 0;
  std::uint64_t wireBytesSent = 0, wireBytesReceived = 0;  // datagrams, our header on
  std::uint64_t retransmits = 0;
  std::uint64_t spuriousRetransmits = 0;  // of them: an earlier one had arrived, as far as acknowledgements tell
  std::uint64_t tailLossProbes = 0;  // silence of some two round trips: the peer was asked what it has
  std::uint64_t retransmitTimeouts = 0;  // it did not answer, and was asked again
  // Repair frames, frames that were found again from the peer's, and frames that had to be sent again although repair frames covered them.
  std::uint64_t repairFramesSent = 0, repairFramesReceived = 0, framesRecovered = 0, framesUnrepaired = 0;
  std::uint64_t duplicatesReceived = 0;
  std::uint64_t corruptedReceived = 0;  // bad checksum: dropped
  std::uint64_t invalidReceived = 0;    // fields out of range, or of another version: dropped
  std::uint64_t eagerMessages = 0, rendezvousMessages = 0, bufferedSends = 0, stagedReceives = 0;
  Duration smoothedRtt{0}, minRtt{0};
  std::uint64_t congestionWindowBytes = 0;
};

}  // namespace gloo_bypass
