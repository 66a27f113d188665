#include "transport/core/send_scoreboard.h"

#include <algorithm>

#include "transport/core/ack_tracker.h"

namespace gloo_bypass {

void SendScoreboard::grow() {
  const std::size_t wanted = capacity_ == 0 ? 64 : capacity_ * 2;
  auto frames = std::make_unique<SentFrame[]>(wanted);
  for (std::uint64_t n = base_; n < next_; ++n) frames[n & (wanted - 1)] = frame(n);
  frames_ = std::move(frames);
  capacity_ = wanted;
}

std::uint64_t SendScoreboard::open() {
  static_assert(kWindow == kMaxFrameWindow);
  GLOO_BYPASS_CHECK(!full());
  if (next_ - base_ == capacity_) grow();
  SentFrame& fresh = frame(next_);
  fresh.state = FrameState::kUnsent;
  fresh.retransmitted = false;
  fresh.declaredLost = false;
  fresh.ackRequested = false;
  fresh.guard = 0;
  fresh.flags = 0;
  fresh.number = 0;
  fresh.message = kNoSlot;
  fresh.length = 0;
  return next_++;
}

void SendScoreboard::onSent(TimePoint now, std::uint64_t sequence) {
  SentFrame& sent = frame(sequence);
  sent.retransmitted = sent.retransmitted || sent.state == FrameState::kLost;
  if (inFlightFrames_ == 0) firstSentAt_ = deliveredAt_ = now;
  sent.firstSentAt = firstSentAt_;
  sent.deliveredAt = deliveredAt_;
  sent.delivered = delivered_;
  sent.appLimited = appLimitedUntil_ != 0;
  sent.sentAt = now;
  sent.order = nextOrder_++;
  orders_.pushBack({sequence, sent.order});
  if (sent.state != FrameState::kInFlight) {
    sent.state = FrameState::kInFlight;
    inFlightBytes_ += sent.wireBytes;
    ++inFlightFrames_;
  } else {
    sent.retransmitted = true;  // a probe
  }
}

void SendScoreboard::leaveFlight(SentFrame& sent) {
  inFlightBytes_ -= sent.wireBytes;
  --inFlightFrames_;
}

void SendScoreboard::undo(std::uint64_t sequence) {
  SentFrame& sent = frame(sequence);
  if (sent.state != FrameState::kInFlight) return;
  leaveFlight(sent);
  // A port that is full refuses the same frame again and again.
  if (!orders_.empty() && orders_.back().order == sent.order) orders_.popBack();
  sent.order = 0;
  sent.state = sent.retransmitted ? FrameState::kLost : FrameState::kUnsent;
}

bool SendScoreboard::acknowledge(TimePoint now, std::uint64_t sequence) {
  SentFrame& sent = frame(sequence);
  if (sent.state == FrameState::kAcknowledged || sent.state == FrameState::kUnsent) return false;
  if (sent.state == FrameState::kInFlight) leaveFlight(sent);
  sent.state = FrameState::kAcknowledged;
  acknowledged_.set(sequence);
  delivered_ += sent.wireBytes;
  deliveredAt_ = now;
  rate_.ackedBytes += sent.wireBytes;
  if (!rate_.valid || sent.order > rate_.order) {
    rate_.valid = true;
    rate_.order = sent.order;
    rate_.priorDelivered = sent.delivered;
    rate_.priorDeliveredAt = sent.deliveredAt;
    rate_.appLimited = sent.appLimited;
    rate_.sendElapsed = sent.sentAt - sent.firstSentAt;
    firstSentAt_ = sent.sentAt;
  }
  return true;
}

void SendScoreboard::slide() {
  const std::uint64_t moved = acknowledged_.findNext(base_, next_, false);
  if (moved == base_) return;
  base_ = moved;
  acknowledged_.advance(moved);
}

void SendScoreboard::clear() {
  base_ = next_;
  acknowledged_.advance(next_);
  orders_.clear();
  lost_.clear();
  inFlightBytes_ = inFlightFrames_ = 0;
}

bool SendScoreboard::oldestInFlight(std::uint64_t* sequence) {
  while (!orders_.empty()) {
    const Transmission& oldest = orders_.front();
    if (oldest.sequence >= base_) {
      const SentFrame& sent = frame(oldest.sequence);
      if (sent.state == FrameState::kInFlight && sent.order == oldest.order) {
        *sequence = oldest.sequence;
        return true;
      }
    }
    orders_.popFront();
  }
  return false;
}

void SendScoreboard::markLost(std::uint64_t sequence) {
  SentFrame& sent = frame(sequence);
  if (sent.state != FrameState::kInFlight) return;
  leaveFlight(sent);
  sent.state = FrameState::kLost;
  sent.declaredLost = true;
  lost_.pushBack(sequence);
}

bool SendScoreboard::nextLost(std::uint64_t* sequence) {
  while (!lost_.empty()) {
    const std::uint64_t candidate = lost_.front();
    if (candidate >= base_ && frame(candidate).state == FrameState::kLost) {
      *sequence = candidate;
      return true;
    }
    lost_.popFront();
  }
  return false;
}

bool SendScoreboard::highestInFlight(std::uint64_t* sequence) {
  for (std::uint64_t n = next_; n-- > base_;) {
    if (frame(n).state == FrameState::kInFlight) {
      *sequence = n;
      return true;
    }
  }
  return false;
}

void SendScoreboard::endGuard(std::uint64_t first, std::size_t frames) {
  for (std::uint64_t n = std::max(first, base_); n < std::min(first + frames, next_); ++n) {
    SentFrame& sent = frame(n);
    if (sent.guard != kGuardOpen) continue;
    const std::uint64_t later = nextOrder_ - 1 - std::min(sent.order, nextOrder_ - 1);
    sent.guard = static_cast<std::uint16_t>(std::clamp<std::uint64_t>(later, 1, kGuardOpen - 1));
  }
}

void SendScoreboard::beginSample() { rate_ = {}; }

void SendScoreboard::finishSample(TimePoint now, Duration minRtt, AckSample* sample) {
  sample->ackedBytes = rate_.ackedBytes;
  sample->deliveredBytes = delivered_;
  sample->inFlightBytes = inFlightBytes_;
  if (appLimitedUntil_ != 0 && delivered_ >= appLimitedUntil_) appLimitedUntil_ = 0;
  if (!rate_.valid) return;
  sample->priorDeliveredBytes = rate_.priorDelivered;
  sample->appLimited = rate_.appLimited;
  const Duration interval = std::max(rate_.sendElapsed, now - rate_.priorDeliveredAt);
  // An interval below the shortest round trip is compression on the way, not a rate. An eighth below it is the
  // granularity of the timestamps that the round trip was measured with.
  if (interval.count() <= 0 || interval < minRtt - minRtt / 8) return;
  sample->deliveryRateBytesPerSecond =
      static_cast<double>(delivered_ - rate_.priorDelivered) * 1e9 / static_cast<double>(interval.count());
}

}  // namespace gloo_bypass
