#include "transport/datagram/datagram_session.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <utility>

namespace gloo_bypass {
namespace {

// Ranks that start together meet within a second or two.
constexpr auto kSilenceWorthALine = std::chrono::seconds(10);

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
  peerPort_ = peer.portAddress;
  remoteId = peer.sessionId;
  properties_ = port_.linkProperties(*link);
  connectingSince_ = now;
  if (properties_.lossless) core.markLossless();
  if (properties_.verified) core.markVerified();
  core.connect(now, remoteId, properties_.maxDatagramBytes);
  return {};
}

// A session learns from its peer's first datagram that packets come from there, and from the answer to its own that they
// go there as well.
std::string DatagramSession::whatIsBlocked() const {
  return fmt::format(
      "{} ({}). Firewalls must let UDP through both ways: 'gloo-bypass-doctor --listen' on the peer's host "
      "and 'gloo-bypass-doctor --probe ADDRESS' on this one say which way is blocked",
      core.peerHeard() ? "its packets arrive here, but there is no answer to ours" : "nothing has arrived from it",
      port_.describeLink(*link));
}

void DatagramSession::handleTimeout(TimePoint now) {
  const SessionState before = core.state();
  core.handleTimeout(now);
  if (before == SessionState::kConnecting && core.state() == before) return warnOfSilence(now);
  if (before == SessionState::kFailed || core.state() != SessionState::kFailed) return;
  // For nothing was heard: it may be for this machine's part.
  std::string why = port_.trouble(*link);
  if (why.empty() && before == SessionState::kConnecting && !properties_.lossless &&
      core.error().code == ErrorCode::kTimedOut) {
    why = whatIsBlocked();
  }
  if (!why.empty()) core.explainFailure(why);
}

// Once a process: ranks wait for each other, and one late rank holds up many.
void DatagramSession::warnOfSilence(TimePoint now) const {
  static std::atomic<bool> said{false};
  if (properties_.lossless || now - connectingSince_ < kSilenceWorthALine || said.exchange(true)) return;
  std::fprintf(
      stderr, "gloo-bypass: rank %d waits for %s, %d s so far; it may be waiting for another rank. If not: %s\n",
      options().localRank, peerName_.c_str(), static_cast<int>(kSilenceWorthALine.count()), whatIsBlocked().c_str());
}

ChannelState DatagramSession::state() const { return channelState(core.state()); }

bool DatagramSession::finished() const {
  const SessionState state = core.state();
  return core.drained() || (linkDown_ && (state == SessionState::kClosed || state == SessionState::kFailed));
}

// A peer closes a link that no session of its own uses. One of ours that connects just then is for a session of the
// peer's that has not connected yet, and so will do that over the next link; all it can have sent is a Hello, which it
// repeats.
void DatagramSession::onLinkDown(const Error& error) {
  const SessionState state = core.state();
  const bool connects = state == SessionState::kConnecting || (state == SessionState::kClosing && !met_);
  if (error.code != ErrorCode::kPeerClosed || !connects) return failLink(error);
  linkLost_ = true;
  markDirty();
}

void DatagramSession::openLinkAgain() {
  linkLost_ = false;
  const auto opened = port_.openLink(peerPort_);
  if (!opened) return failLink(opened.error());
  link = opened.value();
  const LinkProperties begunWith = std::exchange(properties_, port_.linkProperties(*link));
  // The session's settings, and what its Hello says, are for the link that it began with.
  if (properties_.lossless != begunWith.lossless || properties_.verified != begunWith.verified ||
      properties_.maxDatagramBytes < begunWith.maxDatagramBytes) {
    failLink({ErrorScope::kSession, ErrorCode::kUnavailable,
              "the peer closed the link, and the next one is of another kind"});
  }
}

void DatagramSession::failLink(const Error& error) {
  Error named = error;
  named.message = fmt::format("{}: {}", peerName_, error.message);
  core.fail(named);
  linkDown_ = true;
  markDirty();
}

bool DatagramSession::tellEvents() {
  met_ = met_ || core.state() == SessionState::kEstablished;
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
