// One directed edge of an emulated fabric: what happens to each frame that goes from one host to another.
//
//   offer -> [link up?] -> [random and burst loss] -> queue (limit, drop-tail) -> rate -> delay + jitter
//         -> [reorder] -> [duplicate] -> [corrupt] -> arrival
//
// Pure: it knows frames by their size alone, and says when they arrive; whoever calls holds them until then, and so
// copies nothing here. Time and the seed are arguments: the same seed, models and offers give the same verdicts. One
// thread. Nothing here fails or waits.
//
// Bytes: the rate and the queue count `frameBytes` as given plus the model's overheadBytes for each frame. The switch
// gives layer-2 frames without preamble, FCS and gap, as tc counts them; overheadBytes = 24 makes it the bits on an
// Ethernet wire. Frames that are lost at random or while the link is down take no room on the link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "tools/fabric/core/random.h"
#include "transport/base/time.h"

namespace gloo_bypass::fabric {

// Probabilities are from 0 to 1.
struct EdgeModel {
  std::uint64_t rateBitsPerSecond = 0;  // 0: no limit
  Duration delay{0};
  Duration jitter{0};  // uniform from 0 to this, added to the delay; keeps the order
  double loss = 0;
  // Bursts (Gilbert-Elliott): each frame may enter the bad state, is lost in it with burstLoss, may leave it.
  double burstEnter = 0, burstLeave = 0.2, burstLoss = 0.8;
  double duplication = 0;  // the second one arrives reorderDelay / 2 after the first, and takes no room in the queue
  double reordering = 0;   // such frames take up to reorderDelay longer and are overtaken
  Duration reorderDelay{0};
  double corruption = 0;  // of each frame that arrives: see corruptFrame
  // Of what is not yet sent, the frame being sent included; 0: no limit. An empty queue takes any frame.
  std::uint64_t queueBytes = 0;
  std::uint16_t overheadBytes = 0;  // counted for each frame beside its own bytes
  bool up = true;                   // down: frames offered are lost; those accepted before arrive

  friend bool operator==(const EdgeModel&, const EdgeModel&) = default;
};

enum class FrameFate : std::uint8_t { kDelivered, kLostRandomly, kLostInBurst, kQueueFull, kLinkDown };

struct Delivery {
  TimePoint arrival;
  bool corrupt = false;
  std::uint64_t corruptionSeed = 0;  // for corruptFrame
};

struct Verdict {
  FrameFate fate = FrameFate::kDelivered;
  TimePoint departure{};                 // when its last bit leaves the queue; only when delivered
  std::uint8_t deliveryCount = 0;        // 0, 1, or 2 for a duplicated frame
  std::array<Delivery, 2> deliveries{};  // not in the order of arrival of other frames: keep them in a heap

  std::span<const Delivery> delivered() const& { return {deliveries.data(), deliveryCount}; }
  std::span<const Delivery> delivered() const&& = delete;  // would dangle
};

// Frames and their own bytes (without overhead) since the start. Delivered ones are counted when the verdict is given.
// offered = accepted + lostRandomly + lostInBurst + lostInQueue + lostWhileDown; delivered = accepted + duplicated.
struct EdgeCounters {
  std::uint64_t offered = 0, offeredBytes = 0;
  std::uint64_t accepted = 0, acceptedBytes = 0;
  std::uint64_t delivered = 0, deliveredBytes = 0;
  std::uint64_t lostRandomly = 0, lostInBurst = 0, lostInQueue = 0, lostWhileDown = 0;
  std::uint64_t duplicated = 0, reordered = 0, corrupted = 0;
  std::uint64_t maxQueueBytes = 0;  // with overhead
  // The two sums stop at Duration::max().
  Duration totalQueueing{0};  // from offer until the frame's own sending begins, over accepted frames
  Duration totalDelay{0};     // from offer until the first arrival, over accepted frames

  std::uint64_t lost() const { return lostRandomly + lostInBurst + lostInQueue + lostWhileDown; }
  // Of several edges, or of one in several runs: all but the two sums of durations.
  EdgeCounters& operator+=(const EdgeCounters& more);
};

class EdgeEmulator {
 public:
  // Bounds that keep nanoseconds times bits within 64 bits.
  static constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 24;
  static constexpr std::uint64_t kMaxRateBitsPerSecond = 100'000'000'000'000'000;

  EdgeEmulator(const EdgeModel& model, std::uint64_t seed);

  // `now` must not be before that of an earlier call. `frameBytes` at most kMaxFrameBytes.
  Verdict offer(TimePoint now, std::size_t frameBytes);
  // When a frame of this size would find room in the queue, if nothing else is offered: `now` if it does already.
  TimePoint roomAt(TimePoint now, std::size_t frameBytes) const;
  // Accepted and not yet sent at `now`, the frame being sent included, with overhead.
  std::uint64_t queuedBytes(TimePoint now) const;

  // From the next offer on; what was accepted keeps its times, and order: a later frame is sent after it, and
  // (reordering apart) arrives no earlier, however short the new delay is.
  void setModel(const EdgeModel& model);
  const EdgeModel& model() const { return model_; }
  const EdgeCounters& counters() const { return counters_; }

 private:
  struct Queued {
    TimePoint departure;
    std::uint64_t bytes;
  };

  FrameFate fateOf(std::uint64_t bytes);
  TimePoint send(TimePoint now, std::uint64_t bytes);
  Delivery deliver(TimePoint arrival, std::size_t frameBytes);
  Duration upTo(Duration most);
  void forgetSent(TimePoint now);

  EdgeModel model_;
  Random loss_;    // of its own, so that the n-th frame offered is lost or not whatever queues and delays do meanwhile
  Random random_;  // of frames that are accepted
  bool inBurst_ = false;
  TimePoint busyUntil_{};  // rounded down; the rest is busyRemainder_ / rate nanoseconds
  std::uint64_t busyRemainder_ = 0;
  TimePoint lastArrival_{};
  std::deque<Queued> queue_;       // ascending departures; empty without a rate
  std::uint64_t queuedBytes_ = 0;  // sum over queue_
  EdgeCounters counters_;
};

// Damages a frame in place as its delivery's seed says: 1 to 3 flipped bits, or (one in five) a cut tail. Returns the
// length that is left. The first `untouchedBytes` are neither flipped nor cut (a switch keeps the Ethernet header, so
// that the frame arrives where it was sent); a frame no longer than that stays as it is.
std::size_t corruptFrame(std::span<std::byte> frame, std::uint64_t corruptionSeed, std::size_t untouchedBytes = 0);

// "rate 50 Mbit/s, delay 300 ms, loss 0.1 %": what the edge does to frames; "nothing" if it passes all at once.
std::string describe(const EdgeModel& model);

}  // namespace gloo_bypass::fabric
