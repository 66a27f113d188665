// How long a datagram waited in queues on its way here, by its own time stamp: how much longer its way took than that
// of the quickest one of the last seconds. The two hosts' clocks need not agree, only go equally fast. Pure.
//
// A round trip also has the queue of the way back, which the peer's data fill. A sender that took it for its own queue
// would slow down. Of two hosts that send to each other, one would then fill its way, and the other one's would be
// idle.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/base/time.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

class ReturnQueue {
 public:
  // Both in ticks, which wrap around: of this host's clock as the datagram arrived, of the peer's as it was sent.
  Duration of(TimePoint now, std::uint32_t arrived, std::uint32_t sent) {
    const std::uint32_t way = arrived - sent;
    const Duration age = now - since_;
    if (!begun_ || age > kAge) {
      previous_ = begun_ && age <= 2 * kAge ? least_ : way;  // after a silence the clocks have drifted too far
      least_ = way;
      since_ = now;
      begun_ = true;
    }
    if (longer(least_, way) > 0) least_ = way;
    const std::int32_t queued = std::max(longer(way, least_), longer(way, previous_));
    return Duration(std::max<std::int64_t>(queued, 0) * wire::kTickNanoseconds);
  }

 private:
  // Clocks drift apart by some microseconds in that time, and a queue that stays as long is forgotten.
  static constexpr Duration kAge = std::chrono::seconds(5);
  static std::int32_t longer(std::uint32_t one, std::uint32_t other) { return static_cast<std::int32_t>(one - other); }

  bool begun_ = false;
  std::uint32_t least_ = 0, previous_ = 0;
  TimePoint since_{};
};

}  // namespace gloo_bypass
