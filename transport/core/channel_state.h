// What a session's state means to the user of its channel. Pure.
#pragma once

#include "transport/channel/message_channel.h"
#include "transport/core/session_event.h"

namespace gloo_bypass {

inline ChannelState channelState(SessionState state) {
  switch (state) {
    case SessionState::kIdle:
      return ChannelState::kUnconnected;
    case SessionState::kConnecting:
      return ChannelState::kConnecting;
    case SessionState::kEstablished:
      return ChannelState::kConnected;
    case SessionState::kPeerClosed:
      return ChannelState::kPeerClosed;
    case SessionState::kFailed:
      return ChannelState::kFailed;
    case SessionState::kClosing:
    case SessionState::kClosed:
      return ChannelState::kClosed;
  }
  return ChannelState::kFailed;
}

}  // namespace gloo_bypass
