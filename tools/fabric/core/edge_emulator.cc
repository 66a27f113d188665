#include "tools/fabric/core/edge_emulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/fabric/core/quantity.h"
#include "transport/base/check.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr double kCutTail = 0.2;  // of the damaged frames; the others have flipped bits
constexpr std::size_t kMaxFlips = 3;

// Stops at the largest number: a million frames that each wait for a year are more nanoseconds than 63 bits hold.
void addUpTo(Duration& sum, Duration term) { sum = term > Duration::max() - sum ? Duration::max() : sum + term; }

}  // namespace

EdgeCounters& EdgeCounters::operator+=(const EdgeCounters& more) {
  for (const auto member :
       {&EdgeCounters::offered, &EdgeCounters::offeredBytes, &EdgeCounters::accepted, &EdgeCounters::acceptedBytes,
        &EdgeCounters::delivered, &EdgeCounters::deliveredBytes, &EdgeCounters::lostRandomly,
        &EdgeCounters::lostInBurst, &EdgeCounters::lostInQueue, &EdgeCounters::lostWhileDown, &EdgeCounters::duplicated,
        &EdgeCounters::reordered, &EdgeCounters::corrupted}) {
    this->*member += more.*member;
  }
  maxQueueBytes = std::max(maxQueueBytes, more.maxQueueBytes);
  return *this;
}

EdgeEmulator::EdgeEmulator(const EdgeModel& model, std::uint64_t seed) : loss_(seedOf(seed, "loss")), random_(seed) {
  setModel(model);
}

void EdgeEmulator::setModel(const EdgeModel& model) {
  GLOO_BYPASS_CHECK(model.rateBitsPerSecond <= kMaxRateBitsPerSecond);
  if (model.rateBitsPerSecond != model_.rateBitsPerSecond) busyRemainder_ = 0;  // under a nanosecond
  model_ = model;
}

Verdict EdgeEmulator::offer(TimePoint now, std::size_t frameBytes) {
  GLOO_BYPASS_CHECK(frameBytes <= kMaxFrameBytes);
  ++counters_.offered;
  counters_.offeredBytes += frameBytes;
  forgetSent(now);
  const std::uint64_t bytes = frameBytes + model_.overheadBytes;
  Verdict verdict;
  verdict.fate = fateOf(bytes);
  if (verdict.fate != FrameFate::kDelivered) return verdict;
  ++counters_.accepted;
  counters_.acceptedBytes += frameBytes;
  verdict.departure = send(now, bytes);
  TimePoint arrival = verdict.departure + model_.delay + upTo(model_.jitter);
  lastArrival_ = arrival = std::max(arrival, lastArrival_);
  if (random_.chance(model_.reordering)) {
    ++counters_.reordered;
    arrival += upTo(model_.reorderDelay);
  }
  addUpTo(counters_.totalDelay, arrival - now);
  verdict.deliveries[verdict.deliveryCount++] = deliver(arrival, frameBytes);
  if (random_.chance(model_.duplication)) {
    ++counters_.duplicated;
    verdict.deliveries[verdict.deliveryCount++] = deliver(arrival + model_.reorderDelay / 2, frameBytes);
  }
  return verdict;
}

FrameFate EdgeEmulator::fateOf(std::uint64_t bytes) {
  if (!model_.up) {
    ++counters_.lostWhileDown;
    return FrameFate::kLinkDown;
  }
  if (model_.burstEnter > 0) {
    inBurst_ = inBurst_ ? !loss_.chance(model_.burstLeave) : loss_.chance(model_.burstEnter);
    if (inBurst_ && loss_.chance(model_.burstLoss)) {
      ++counters_.lostInBurst;
      return FrameFate::kLostInBurst;
    }
  } else {
    inBurst_ = false;
  }
  if (loss_.chance(model_.loss)) {
    ++counters_.lostRandomly;
    return FrameFate::kLostRandomly;
  }
  if (model_.queueBytes > 0 && queuedBytes_ > 0 && queuedBytes_ + bytes > model_.queueBytes) {
    ++counters_.lostInQueue;
    return FrameFate::kQueueFull;
  }
  return FrameFate::kDelivered;
}

TimePoint EdgeEmulator::send(TimePoint now, std::uint64_t bytes) {
  if (busyUntil_ < now) {
    busyUntil_ = now;
    busyRemainder_ = 0;
  }
  addUpTo(counters_.totalQueueing, busyUntil_ - now);
  if (model_.rateBitsPerSecond == 0) return busyUntil_;
  const std::uint64_t scaled = bytes * 8 * kNanosecondsPerSecond + busyRemainder_;
  busyUntil_ += Duration(static_cast<Duration::rep>(scaled / model_.rateBitsPerSecond));
  busyRemainder_ = scaled % model_.rateBitsPerSecond;
  queue_.push_back({busyUntil_, bytes});
  queuedBytes_ += bytes;
  counters_.maxQueueBytes = std::max(counters_.maxQueueBytes, queuedBytes_);
  return busyUntil_;
}

Delivery EdgeEmulator::deliver(TimePoint arrival, std::size_t frameBytes) {
  ++counters_.delivered;
  counters_.deliveredBytes += frameBytes;
  Delivery delivery{arrival};
  if (random_.chance(model_.corruption)) {
    ++counters_.corrupted;
    delivery.corrupt = true;
    delivery.corruptionSeed = random_.next();
  }
  return delivery;
}

Duration EdgeEmulator::upTo(Duration most) {
  if (most <= Duration{0}) return Duration{0};
  return Duration(static_cast<Duration::rep>(random_.uniform() * static_cast<double>(most.count())));
}

void EdgeEmulator::forgetSent(TimePoint now) {
  while (!queue_.empty() && queue_.front().departure <= now) {
    queuedBytes_ -= queue_.front().bytes;
    queue_.pop_front();
  }
}

TimePoint EdgeEmulator::roomAt(TimePoint now, std::size_t frameBytes) const {
  if (model_.queueBytes == 0) return now;
  const std::uint64_t bytes = frameBytes + model_.overheadBytes;
  std::uint64_t waiting = queuedBytes_;
  TimePoint at = now;
  for (const Queued& each : queue_) {
    const bool sent = each.departure <= now;
    if (!sent && waiting + bytes <= model_.queueBytes) return at;
    if (!sent) at = each.departure;
    waiting -= each.bytes;
  }
  return at;
}

std::uint64_t EdgeEmulator::queuedBytes(TimePoint now) const {
  std::uint64_t waiting = queuedBytes_;
  for (const Queued& each : queue_) {
    if (each.departure > now) break;
    waiting -= each.bytes;
  }
  return waiting;
}

std::size_t corruptFrame(std::span<std::byte> frame, std::uint64_t corruptionSeed, std::size_t untouchedBytes) {
  if (frame.size() <= untouchedBytes) return frame.size();
  const std::span<std::byte> body = frame.subspan(untouchedBytes);
  Random random(corruptionSeed);
  if (random.chance(kCutTail)) return untouchedBytes + random.below(body.size());
  std::array<std::uint64_t, kMaxFlips> flipped{};
  const std::uint64_t flips = 1 + random.below(kMaxFlips);
  for (std::size_t i = 0; i < flips; ++i) {
    const auto before = flipped.begin() + static_cast<std::ptrdiff_t>(i);
    // The same bit twice would be no damage. Any body has 8 bits, and at most 3 are wanted.
    do {
      flipped[i] = random.below(body.size() * 8);
    } while (std::find(flipped.begin(), before, flipped[i]) != before);
    body[flipped[i] / 8] ^= std::byte{1} << (flipped[i] % 8);
  }
  return frame.size();
}

std::string describe(const EdgeModel& model) {
  std::string text;
  const auto add = [&](bool present, const std::string& part) {
    if (present) text += (text.empty() ? "" : ", ") + part;
  };
  const auto share = [&](std::string_view name, double probability) {
    add(probability > 0, fmt::format("{} {}", name, percentageText(probability)));
  };
  add(!model.up, "down");
  add(model.rateBitsPerSecond > 0, "rate " + rateText(model.rateBitsPerSecond));
  add(model.overheadBytes > 0, "overhead " + bytesText(model.overheadBytes));
  add(model.queueBytes > 0 && model.rateBitsPerSecond > 0, "queue " + bytesText(model.queueBytes));
  add(model.delay > Duration{0}, "delay " + durationText(model.delay));
  add(model.jitter > Duration{0}, "jitter " + durationText(model.jitter));
  share("loss", model.loss);
  add(model.burstEnter > 0,
      fmt::format("bursts entered by {}, left by {}, that lose {}", percentageText(model.burstEnter),
                  percentageText(model.burstLeave), percentageText(model.burstLoss)));
  share("duplication", model.duplication);
  add(model.reordering > 0,
      fmt::format("reordering {} by {}", percentageText(model.reordering), durationText(model.reorderDelay)));
  share("corruption", model.corruption);
  return text.empty() ? "nothing" : text;
}

}  // namespace gloo_bypass::fabric
