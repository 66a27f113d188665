// Every frame that was given a sequence number and is not acknowledged yet: where it stands, what it takes to
// retransmit it, and the delivery-rate sample it carries. Pure. Bounded by kMaxFrameWindow frames.
//
//   open() -> kUnsent -> onSent() -> kInFlight -> acknowledge() -> kAcknowledged -> (window moves on)
//                 ^ undo()              | markLost()    ^ late acknowledgement
//                                       v               |
//                                     kLost  ---------- + -> onSent() -> kInFlight
//
// Transmissions are numbered too (`order`): a frame is behind those sent after it whatever their sequence numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/bit_ring.h"
#include "transport/base/ring_queue.h"
#include "transport/base/slot_pool.h"
#include "transport/base/time.h"
#include "transport/core/congestion.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

enum class FrameState : std::uint8_t { kUnsent, kInFlight, kLost, kAcknowledged };

// The state of a frame's latest transmission.
enum class FramePieces : std::uint8_t { kNone, kUsual, kSmall };

struct SentFrame {
  TimePoint sentAt;
  std::uint64_t order = 0;      // of its latest transmission
  std::uint64_t number = 0;     // kGrant, kWithdraw: message id; kClose: messages; data: chunk offset
  SlotIndex message = kNoSlot;  // data, kAnnounce: the outgoing message
  std::uint16_t length = 0;     // data: chunk length
  std::uint16_t wireBytes = 0;  // counted in flight: with the frame's share of its block's repair frames
  std::uint16_t guard = 0;      // so many transmissions later the block's last repair frame went out; 0: not covered
  wire::FrameType type = wire::FrameType::kCredit;
  std::uint8_t flags = 0;  // MessageFlag
  FrameState state = FrameState::kUnsent;
  // Bits, for a frame to be a cache line.
  bool retransmitted : 1 = false;  // sent more than once: after a loss, or as a probe
  bool declaredLost : 1 = false;   // at any time
  bool ackRequested : 1 = false;
  FramePieces pieces : 2 = FramePieces::kNone;
  // Delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
  bool appLimited : 1 = false;
  std::uint64_t delivered = 0;
  TimePoint deliveredAt, firstSentAt;

  std::size_t datagramBytes() const { return wire::dataHeaderBytes(type) + length; }
  // The longest datagram in which it went out last.
  std::size_t sentDatagramBytes() const {
    return pieces == FramePieces::kNone    ? datagramBytes()
           : pieces == FramePieces::kUsual ? wire::kUsualMinDatagramBytes
                                           : wire::kMinDatagramBytes;
  }
};
static_assert(sizeof(SentFrame) == 64);

class SendScoreboard {
 public:
  explicit SendScoreboard(std::uint64_t firstSequence)
      : base_(firstSequence), next_(firstSequence), acknowledged_(firstSequence) {}

  std::uint64_t base() const { return base_; }  // oldest not acknowledged
  std::uint64_t next() const { return next_; }  // next to be given
  bool empty() const { return base_ == next_; }
  bool full() const { return next_ - base_ >= kWindow || orders_.size() >= 2 * kWindow; }
  std::size_t inFlightBytes() const { return inFlightBytes_; }
  bool anyInFlight() const { return inFlightFrames_ != 0; }
  SentFrame& frame(std::uint64_t sequence) { return frames_[sequence & (capacity_ - 1)]; }

  // A new frame, kUnsent; the caller fills in what it carries. Not when full().
  std::uint64_t open();
  // Whether it was a first transmission stands in frame.retransmitted afterwards.
  void onSent(TimePoint now, std::uint64_t sequence);
  // The port did not take it.
  void undo(std::uint64_t sequence);

  // Acknowledges one frame; false: it was already.
  bool acknowledge(TimePoint now, std::uint64_t sequence);
  // First frame of [from, limit) that is not acknowledged.
  std::uint64_t nextUnacknowledged(std::uint64_t from, std::uint64_t limit) const {
    return acknowledged_.findNext(from, limit, false);
  }
  // Moves base over what is acknowledged.
  void slide();
  void clear();

  // Oldest transmission that is neither acknowledged nor lost; false: none.
  bool oldestInFlight(std::uint64_t* sequence);
  std::uint64_t largestAckedOrder() const { return largestAckedOrder_; }
  void noteAckedOrder(std::uint64_t order) {
    if (order > largestAckedOrder_) largestAckedOrder_ = order;
  }
  void markLost(std::uint64_t sequence);
  // Next frame to retransmit; false: none.
  bool nextLost(std::uint64_t* sequence);
  bool anyLost() {
    std::uint64_t unused;
    return nextLost(&unused);
  }
  // Highest frame in flight, for a loss probe.
  bool highestInFlight(std::uint64_t* sequence);

  // Delivery-rate sample of the acknowledgement in progress.
  void beginSample();
  // Of what this acknowledgement has acknowledged so much did not come through itself, and is no part of the path's
  // rate.
  void discountDelivered(std::size_t bytes) { delivered_ -= bytes < rate_.ackedBytes ? bytes : rate_.ackedBytes; }
  void finishSample(TimePoint now, Duration minRtt, AckSample* sample);
  // The sender has nothing to send although it could.
  void markAppLimited() { appLimitedUntil_ = delivered_ + inFlightBytes_ + 1; }

  // The frames of a block will be covered by repair frames that are still to come; the last of them went out just now.
  static constexpr std::uint16_t kGuardOpen = 0xffff;
  void endGuard(std::uint64_t first, std::size_t frames);

  std::size_t memoryBytes() const {
    return capacity_ * sizeof(SentFrame) + orders_.memoryBytes() + lost_.memoryBytes() + acknowledged_.memoryBytes();
  }

 private:
  struct Transmission {
    std::uint64_t sequence, order;
  };
  static constexpr std::uint64_t kWindow = 1 << 17;  // == kMaxFrameWindow
  void grow();
  void leaveFlight(SentFrame& frame);

  std::unique_ptr<SentFrame[]> frames_;
  std::size_t capacity_ = 0;
  std::uint64_t base_, next_;
  BitRing acknowledged_;
  RingQueue<Transmission> orders_;  // in order of sending; entries go stale, see oldestInFlight
  RingQueue<std::uint64_t> lost_;   // may hold frames that were acknowledged since
  std::uint64_t nextOrder_ = 1, largestAckedOrder_ = 0;
  std::size_t inFlightBytes_ = 0, inFlightFrames_ = 0;

  std::uint64_t delivered_ = 0, appLimitedUntil_ = 0;
  TimePoint deliveredAt_{}, firstSentAt_{};
  struct RateSample {
    bool valid = false, appLimited = false;
    std::uint64_t priorDelivered = 0, order = 0;
    TimePoint priorDeliveredAt{};
    Duration sendElapsed{0};
    std::uint64_t ackedBytes = 0;
  } rate_;
};

}  // namespace gloo_bypass
