// Counters of channels, summed and written for people and programs; the same names whichever back-end.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "transport/core/message.h"

namespace gloo_bypass {

// Round-trip times and windows are of one channel only, and not summed.
ChannelCounters& operator+=(ChannelCounters& sum, const ChannelCounters& c);
nlohmann::json toJson(const ChannelCounters& c);

}  // namespace gloo_bypass
