// What a session tells its user, by polling (transport/core/session.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/channel/message.h"

namespace gloo_bypass {

enum class SessionState : std::uint8_t { kIdle, kConnecting, kEstablished, kPeerClosed, kClosing, kClosed, kFailed };

struct SessionEvent {
  enum class Type : std::uint8_t { kSendComplete, kReceiveComplete, kMessageAnnounced, kStateChange };
  Type type;
  OperationToken token = 0;                  // kSendComplete, kReceiveComplete
  MessageKey key;                            // kMessageAnnounced
  std::size_t length = 0;                    // kReceiveComplete, kMessageAnnounced
  SessionState state = SessionState::kIdle;  // kStateChange
};

}  // namespace gloo_bypass
