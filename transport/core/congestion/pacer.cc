#include "transport/core/congestion/pacer.h"

#include <algorithm>
#include <cmath>

namespace gloo_bypass {
namespace {

constexpr double kBurstSeconds = 0.001;
constexpr std::size_t kMaxBurstBytes = 64 * 1024;
// Slower is taken for this: 1 KiB/s is a datagram a second or so, and keeps the arithmetic finite.
constexpr double kMinBytesPerSecond = 1024;

}  // namespace

void Pacer::setRate(double bytesPerSecond, std::size_t datagramBytes) {
  if (bytesPerSecond == bytesPerSecond_ && datagramBytes == datagramBytes_) return;
  bytesPerSecond_ = bytesPerSecond;
  datagramBytes_ = datagramBytes;
  const double nanosecondsPerByteBefore = nanosecondsPerByte_;
  if (std::isinf(bytesPerSecond)) {
    nanosecondsPerByte_ = 0;
    next_ = std::min(next_, lastSent_);
    burstBytes_ = 0;
    tolerance_ = untilHalfBurst_ = Duration{0};
    return;
  }
  const double rate = std::max(bytesPerSecond, kMinBytesPerSecond);
  nanosecondsPerByte_ = 1e9 / rate;
  const std::size_t wanted = static_cast<std::size_t>(std::min(rate * kBurstSeconds, double{kMaxBurstBytes}));
  burstBytes_ = std::max(wanted, 2 * datagramBytes);
  // One datagram always conforms, so the tolerance covers the rest of the burst.
  tolerance_ = timeFor(burstBytes_ - std::min(burstBytes_, datagramBytes));
  untilHalfBurst_ = timeFor(burstBytes_ / 2 - std::min(burstBytes_ / 2, datagramBytes));
  // What the bucket holds are bytes: at another rate they take another time.
  if (nanosecondsPerByteBefore > 0 && next_ > lastSent_) {
    const double held = static_cast<double>((next_ - lastSent_).count()) / nanosecondsPerByteBefore;
    next_ = lastSent_ + timeFor(static_cast<std::size_t>(held));
  }
}

void Pacer::onSent(TimePoint now, std::size_t bytes) {
  lastSent_ = now;
  next_ = std::max(next_, backlogged_ ? now - lateness_ : now) + timeFor(bytes);
}

void Pacer::undo(std::size_t bytes) { next_ -= timeFor(bytes); }

Duration Pacer::timeFor(std::size_t bytes) const {
  return Duration(static_cast<Duration::rep>(static_cast<double>(bytes) * nanosecondsPerByte_));
}

}  // namespace gloo_bypass
