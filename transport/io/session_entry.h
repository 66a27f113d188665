// Private to datagram_transport: one session, the channel that uses it, and where it stands in the poll loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/core/session.h"
#include "transport/io/message_channel.h"
#include "transport/io/packet_port.h"

namespace gloo_bypass {

struct SessionEntry {
  SessionEntry(const SessionConfig& config, std::uint64_t id, std::uint64_t entropy, const ChannelOptions& channelOptions,
               std::uint64_t channelNumber)
      : localId(id), number(channelNumber), options(channelOptions), session(config, id, entropy) {}

  const std::uint64_t localId;
  const std::uint64_t number;  // in the order of opening: the channel's name in counters
  const ChannelOptions options;
  Session session;
  ChannelObserver* observer = nullptr;  // null once the channel is closed
  std::optional<LinkId> link;
  std::string peer;         // for messages
  TimePoint deadline = kNever;  // session.pollTimeout() when last pumped
  TimePoint transmitFrom{};     // the port was full: not before this
  bool dirty = false;       // in DatagramTransport's dirty list
  bool closed = false;      // the channel is gone; destroyed when drained
  bool linkDown = false;    // the link carries nothing any more

  // Nothing is left to do for the peer, or nothing can be done.
  bool finished() const {
    const SessionState state = session.state();
    return session.drained() || (linkDown && (state == SessionState::kClosed || state == SessionState::kFailed));
  }
};

}  // namespace gloo_bypass
