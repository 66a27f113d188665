// What happens although nothing arrives.
#include <algorithm>

#include "transport/core/session_impl.h"

namespace gloo_bypass {

TimePoint Session::Impl::lossProbeDeadline() const {
  if (!board_.anyInFlight()) return kNever;
  if (config_.losslessLink) return timerSince_ + rto();
  return std::max(lastSentAt_, timerSince_) + rto_.probeTimeout(kPeerAckDelay);
}

TimePoint Session::Impl::silenceDeadline() const {
  if (config_.losslessLink || !handshake_.done()) return kNever;
  if (state_ != SessionState::kEstablished && state_ != SessionState::kClosing) return kNever;
  const Duration keepAlive = config_.keepAlive.count() > 0 ? config_.keepAlive : config_.peerTimeout;
  return std::min(std::max(lastReceivedAt_, lastPingAt_) + keepAlive, lastReceivedAt_ + config_.peerTimeout);
}

// The peer was silent for too long. It is asked what it has (RFC 9002, 6.2); what is lost, its answer tells, and until then nothing is.
void Session::Impl::onLossProbeTimeout(TimePoint now) {
  timerSince_ = now;
  if (config_.losslessLink) {
    // The payload may be gone from the user's buffer, and is not lost.
    pingDue_ = true;
  } else {
    lossProbeDue_ = true;
    ++(rto_.backOffs() == 0 ? counters_.tailLossProbes : counters_.retransmitTimeouts);
    ++unanswered_;
    askedAt_ = ticks(now);
  }
  rto_.backOff();
}

void Session::Impl::checkSilence(TimePoint now) {
  if (now < silenceDeadline()) return;
  if (now >= lastReceivedAt_ + config_.peerTimeout) {
    const auto seconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - lastReceivedAt_).count() / 1000.0;
    return fail({ErrorScope::kSession, ErrorCode::kPeerVanished,
                 "nothing was heard from the peer for " + std::to_string(seconds) + " s"}, true);
  }
  lastPingAt_ = now;
  pingDue_ = true;
}

void Session::Impl::handleTimeout(TimePoint now) {
  settleLast();
  if (state_ == SessionState::kIdle || state_ == SessionState::kFailed) return;
  if (now >= endsAt_) {  // linger or time wait is over
    endsAt_ = kNever;
    if (state_ == SessionState::kClosing) {
      dropEverything();
      resetDue_ = handshake_.heard();
      state_ = SessionState::kClosed;
    }
  }
  if (state_ == SessionState::kClosed) return;
  if (handshake_.expired(now)) {  // connecting, or closing before the peer was heard
    const auto seconds = std::chrono::duration_cast<std::chrono::milliseconds>(config_.connectTimeout).count() / 1000.0;
    return fail({ErrorScope::kSession, ErrorCode::kTimedOut,
                 "the peer did not answer within " + std::to_string(seconds) + " s of connecting"}, true);
  }
  handshake_.onTimeout(now);
  if (!handshake_.done()) return;
  checkSilence(now);
  if (!live() || state_ == SessionState::kPeerClosed) return;
  probe_.onTimeout(now);
  if (now >= losses_.deadline()) {
    board_.beginSample();
    finishAcknowledgement(now, detectLosses(now));
  }
  if (now >= repairDeadline()) endBlock();
  if (now >= lossProbeDeadline()) onLossProbeTimeout(now);
}

TimePoint Session::Impl::pollTimeout() const {
  if (state_ == SessionState::kIdle || state_ == SessionState::kFailed) return kNever;
  TimePoint next = endsAt_;
  if (state_ == SessionState::kClosed) return next;
  if (!handshake_.done()) return std::min({next, handshake_.deadline(), handshake_.expiry()});
  next = std::min({next, silenceDeadline(), acks_.ackDeadline()});
  if (state_ == SessionState::kPeerClosed) return next;
  if (pacingBlocked_) next = std::min(next, pacer_.releaseTime());
  return std::min({next, losses_.deadline(), lossProbeDeadline(), probe_.deadline(), repairDeadline()});
}

}  // namespace gloo_bypass
