#include "transport/core/ack_tracker.h"

#include <algorithm>

#include "transport/base/sequence.h"

namespace gloo_bypass {

void AckTracker::start(std::uint64_t firstSequence) {
  next_ = highestEnd_ = firstSequence;
  arrived_ = BitRing(firstSequence);
  recent_.fill(0);
}

AckTracker::Arrival AckTracker::onFrame(TimePoint now, std::uint64_t sequence, bool ackRequested) {
  if (sequence >= next_ + kMaxFrameWindow) return Arrival::kOutsideWindow;
  if (sequence < next_ || (sequence != next_ && arrived_.test(sequence))) {
    dueNow_ = true;  // our acknowledgement was lost
    return Arrival::kDuplicate;
  }
  const bool hadGaps = hasGaps();
  if (sequence == next_ && !hadGaps) {
    highestEnd_ = ++next_;
    arrived_.advance(next_);
  } else {
    arrived_.set(sequence);
    highestEnd_ = std::max(highestEnd_, sequence + 1);
    if (sequence == next_) {
      next_ = arrived_.findNext(sequence, highestEnd_, false);
      arrived_.advance(next_);
    } else {
      recent_[recentAt_++ % recent_.size()] = sequence;
    }
  }
  ++unacknowledged_;
  if (ackRequested || hadGaps || hasGaps() || unacknowledged_ >= ackEvery_) {
    dueNow_ = true;
  } else if (delayedUntil_ == kNever) {
    delayedUntil_ = now + maxDelay_;
  }
  return Arrival::kNew;
}

void AckTracker::onTimestamp(TimePoint now, std::uint32_t timestamp) {
  if (haveEcho_ && wire::wasOvertaken(timestamp, echo_, now - echoArrivedAt_)) return;
  haveEcho_ = true;
  echo_ = timestamp;
  echoArrivedAt_ = now;
}

void AckTracker::onAckSent() {
  dueNow_ = false;
  delayedUntil_ = kNever;
  unacknowledged_ = 0;
}

void AckTracker::fillHeader(TimePoint now, wire::PacketHeader* header) const {
  header->acknowledged = truncateSequence(next_);
  if (!haveEcho_) return;
  header->flags |= wire::kFlagEcho;
  header->timestampEcho = echo_;
  const auto ticks = (now - echoArrivedAt_).count() / wire::kTickNanoseconds;
  header->echoDelay = static_cast<std::uint32_t>(std::clamp<std::int64_t>(ticks, 0, 0x7fffffff));
}

std::uint64_t AckTracker::rangeBegin(std::uint64_t sequence) const {
  return arrived_.findPreviousEnd(sequence, next_, false);
}

void AckTracker::writeRanges(wire::PacketWriter* writer) const {
  if (!hasGaps()) return;
  std::size_t count = 0;
  for (std::size_t i = 0; i < recent_.size(); ++i) {
    const std::uint64_t sequence = recent_[(recentAt_ + recent_.size() - 1 - i) % recent_.size()];
    if (sequence <= next_ || !arrived_.test(sequence)) continue;
    const std::uint64_t end = arrived_.findNext(sequence, highestEnd_, false);
    writer->addSackRange({truncateSequence(rangeBegin(sequence)), truncateSequence(end)});
    ++count;
  }
  for (std::uint64_t end = highestEnd_; end > next_ && count < wire::kSentSackRanges; ++count) {
    const std::uint64_t begin = rangeBegin(end);
    writer->addSackRange({truncateSequence(begin), truncateSequence(end)});
    end = arrived_.findPreviousEnd(begin, next_, true);
  }
}

}  // namespace gloo_bypass
