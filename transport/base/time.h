// Time as the transport sees it: nanoseconds since an arbitrary epoch, passed as an argument. There is no now() here:
// higher rooms read the clock, core/ and wire/ never do, and a simulation supplies virtual time.
#pragma once

#include <chrono>

namespace gloo_bypass {

using Duration = std::chrono::nanoseconds;

struct TransportClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<TransportClock, duration>;
  static constexpr bool is_steady = true;
};

using TimePoint = TransportClock::time_point;

inline constexpr TimePoint kNever = TimePoint::max();

}  // namespace gloo_bypass
