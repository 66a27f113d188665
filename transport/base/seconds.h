// Durations for people and files.
#pragma once

#include "transport/base/time.h"

namespace gloo_bypass {

inline constexpr double secondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace gloo_bypass
