// The receiver's side of reliability: which frames arrived, and when the peer gets an acknowledgement. Pure.
//
// An acknowledgement is due at once when a gap opens or closes, when the peer requests it, or after `ackEvery` frames;
// else after `maxDelay`. Any datagram carries the cumulative part; the ranges go in datagrams of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/bit_ring.h"
#include "transport/base/time.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

// Frames beyond the first missing one that are accepted; the sender keeps within it. 131,072 x 1,472 bytes is three
// times the largest buffer.
inline constexpr std::uint64_t kMaxFrameWindow = 1 << 17;

class AckTracker {
 public:
  AckTracker(unsigned ackEvery, Duration maxDelay) : ackEvery_(ackEvery), maxDelay_(maxDelay), arrived_(0) {}

  // The peer's first sequence number.
  void start(std::uint64_t firstSequence);
  void setMaxDelay(Duration maxDelay) { maxDelay_ = maxDelay; }
  void setAckEvery(unsigned ackEvery) { ackEvery_ = ackEvery; }

  enum class Arrival : std::uint8_t { kNew, kDuplicate, kOutsideWindow };
  Arrival onFrame(TimePoint now, std::uint64_t sequence, bool ackRequested);
  // Any datagram with a timestamp to echo.
  void onTimestamp(TimePoint now, std::uint32_t timestamp);
  void requestAck() { dueNow_ = true; }

  // Every frame before it has arrived.
  std::uint64_t next() const { return next_; }
  bool hasArrived(std::uint64_t sequence) const { return sequence < next_ || arrived_.test(sequence); }
  bool hasGaps() const { return highestEnd_ > next_; }
  bool ackDue(TimePoint now) const { return dueNow_ || now >= delayedUntil_; }
  TimePoint ackDeadline() const { return dueNow_ ? TimePoint{} : delayedUntil_; }
  // The cumulative number went out; with gaps the ranges must have gone out too.
  void onAckSent();

  // Fills in the acknowledgement that every header carries.
  void fillHeader(TimePoint now, wire::PacketHeader* header) const;
  // At most kSentSackRanges ranges: those of the latest arrivals first, then from the highest down.
  void writeRanges(wire::PacketWriter* writer) const;
  std::size_t memoryBytes() const { return arrived_.memoryBytes(); }

 private:
  std::uint64_t rangeBegin(std::uint64_t sequence) const;

  unsigned ackEvery_;
  Duration maxDelay_;
  BitRing arrived_;
  std::uint64_t next_ = 0;
  std::uint64_t highestEnd_ = 0;  // one past the highest frame that arrived
  unsigned unacknowledged_ = 0;
  bool dueNow_ = false;
  TimePoint delayedUntil_ = kNever;
  bool haveEcho_ = false;
  std::uint32_t echo_ = 0;
  TimePoint echoArrivedAt_{};
  // Latest arrivals above a gap: an acknowledgement that is lost must not leave the peer without them.
  std::array<std::uint64_t, 4> recent_{};
  unsigned recentAt_ = 0;
};

}  // namespace gloo_bypass
