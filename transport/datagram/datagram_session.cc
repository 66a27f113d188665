#include "transport/datagram/datagram_session.h"

#include <fmt/format.h>

namespace gloo_bypass {
namespace {

ChannelState channelState(SessionState state) {
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

}  // namespace

Status DatagramSession::connect(TimePoint now, const ChannelAddress& peer) {
  peerName_ = peer.description;
  const auto opened = port_.openLink(peer.portAddress);
  if (!opened) return opened.error();
  link = opened.value();
  remoteId = peer.sessionId;
  properties_ = port_.linkProperties(*link);
  if (properties_.lossless) core.markLossless();
  core.connect(now, remoteId, properties_.maxDatagramBytes);
  return {};
}

ChannelState DatagramSession::state() const { return channelState(core.state()); }

bool DatagramSession::finished() const {
  const SessionState state = core.state();
  return core.drained() || (linkDown_ && (state == SessionState::kClosed || state == SessionState::kFailed));
}

void DatagramSession::failLink(const Error& error) {
  Error named = error;
  named.message = fmt::format("{}: {}", peerName_, error.message);
  core.fail(named);
  linkDown_ = true;
  markDirty();
}

bool DatagramSession::tellEvents() {
  SessionEvent event;
  bool any = false;
  while (core.pollEvent(&event)) {
    any = true;
    if (observer_ == nullptr) continue;
    switch (event.type) {
      case SessionEvent::Type::kSendComplete:
        observer_->onSendComplete(event.token);
        break;
      case SessionEvent::Type::kReceiveComplete:
        observer_->onReceiveComplete(event.token, event.length);
        break;
      case SessionEvent::Type::kMessageAnnounced:
        observer_->onMessageAnnounced(event.key, event.length);
        break;
      case SessionEvent::Type::kStateChange:
        observer_->onStateChange(channelState(event.state));
        break;
    }
  }
  return any;
}

}  // namespace gloo_bypass
