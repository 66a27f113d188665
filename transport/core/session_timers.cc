// The session's timers.
#include <algorithm>

#include "transport/core/session.h"

namespace gloo_bypass {
namespace {

// A timer that fires this share of the peer timeout late means that this process stood still, and proves nothing about
// the peer.
constexpr int kPauseShare = 4;
// The peer's port is said to be closed for so long, and the peer does not answer: its process has ended. A process that
// lives answers unless it is stopped; one that has ended is refused by its kernel, which sends at least one message a
// second (icmp_ratelimit).
constexpr Duration kRefusedTimeout = std::chrono::seconds(3);
constexpr Duration kRefusedPingInterval = std::chrono::milliseconds(250);

}  // namespace

TimePoint Session::lossProbeDeadline() const {
  if (!board_.anyInFlight()) return kNever;
  if (config_.losslessLink) return liveness_.timerSince + rto();
  return std::max(liveness_.lastSentAt, liveness_.timerSince) + path_.rtt.probeTimeout(kPeerAckDelay);
}

TimePoint Session::silenceDeadline() const {
  if (config_.losslessLink || !handshake_.done()) return kNever;
  if (state_ != SessionState::kEstablished && state_ != SessionState::kClosing) return kNever;
  Duration keepAlive = config_.keepAlive.count() > 0 ? config_.keepAlive : config_.peerTimeout;
  if (isRefused()) keepAlive = std::min(keepAlive, kRefusedPingInterval);
  return std::min(std::max(liveness_.lastReceivedAt, liveness_.lastPingAt) + keepAlive,
                  liveness_.lastReceivedAt + config_.peerTimeout);
}

// The peer was silent for too long. An acknowledgement is requested (RFC 9002, 6.2); it shows what is lost, and until
// it comes nothing counts as lost.
void Session::onLossProbeTimeout(TimePoint now) {
  liveness_.timerSince = now;
  if (config_.losslessLink) {
    // The payload may be gone from the user's buffer, and is not lost.
    liveness_.pingDue = true;
  } else {
    liveness_.lossProbeDue = true;
    ++(path_.rtt.backOffs() == 0 ? counters_.tailLossProbes : counters_.retransmitTimeouts);
    ++liveness_.unanswered;
    liveness_.probeDueAt = ticks(now);
  }
  path_.rtt.backOff();
}

void Session::checkSilence(TimePoint now) {
  const TimePoint due = silenceDeadline();
  if (now < due) return;
  // What the peer sent meanwhile may be lost, and it may have stood still as well: the clock starts anew, with a
  // question.
  if (now - due >= config_.peerTimeout / kPauseShare) liveness_.lastReceivedAt = now;
  if (now >= liveness_.lastReceivedAt + config_.peerTimeout) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - liveness_.lastReceivedAt).count() / 1000.0;
    return enterFailed({ErrorScope::kSession, ErrorCode::kPeerVanished,
                        "nothing was heard from the peer for " + std::to_string(seconds) + " s"},
                       true);
  }
  ask(now);
}

void Session::ask(TimePoint now) {
  liveness_.lastPingAt = now;
  liveness_.pingDue = true;
}

bool Session::onPortUnreachable(TimePoint now) {
  if (!handshake_.done() || (state_ != SessionState::kEstablished && state_ != SessionState::kClosing)) return false;
  // A ping that is overdue means that this process stood still: the answers may lie unread.
  if (!isRefused() || now - liveness_.lastPingAt >= kRefusedTimeout / kPauseShare) {
    liveness_.refusedSince = now;
    ask(now);
  }
  return now - liveness_.refusedSince >= kRefusedTimeout;
}

void Session::handleTimeout(TimePoint now) {
  if (leadIsOver()) return;
  settleLast();
  if (state_ == SessionState::kIdle || state_ == SessionState::kFailed) return;
  if (now >= ending_.deadline) {  // linger or time wait is over
    ending_.deadline = kNever;
    if (state_ == SessionState::kClosing) abandon(now);
  }
  if (state_ == SessionState::kClosed) return;
  if (handshake_.expired(now)) {  // connecting, or closing before the peer was heard
    const auto seconds = std::chrono::duration_cast<std::chrono::milliseconds>(config_.connectTimeout).count() / 1000.0;
    return enterFailed({ErrorScope::kSession, ErrorCode::kTimedOut,
                        "the peer did not answer within " + std::to_string(seconds) + " s of connecting"},
                       true);
  }
  handshake_.onTimeout(now);
  if (!handshake_.done()) return;
  checkSilence(now);
  if (!live() || state_ == SessionState::kPeerClosed) return;
  if (path_.mtu.onTimeout(now)) onShrunkPath();
  if (!live()) return;
  if (now >= losses_.deadline()) {
    board_.beginSample();
    finishAcknowledgement(now, detectLosses(now));
  }
  if (now >= repairDeadline()) endBlock();
  if (now >= lossProbeDeadline()) onLossProbeTimeout(now);
}

TimePoint Session::pollTimeout() const {
  if (leadIsOver() || state_ == SessionState::kIdle || state_ == SessionState::kFailed) return kNever;
  TimePoint next = ending_.deadline;
  if (state_ == SessionState::kClosed) return next;
  if (!handshake_.done()) return std::min({next, handshake_.deadline(), handshake_.expiry()});
  next = std::min({next, silenceDeadline(), acks_.ackDeadline()});
  if (state_ == SessionState::kPeerClosed) return next;
  if (path_.pacingBlocked) next = std::min(next, path_.pacer.wakeTime());
  return std::min({next, losses_.deadline(), lossProbeDeadline(), path_.mtu.deadline(), repairDeadline()});
}

}  // namespace gloo_bypass
