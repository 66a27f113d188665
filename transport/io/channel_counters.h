// Counters of channels, written for people and programs; the same names whichever back-end.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "transport/core/message.h"

namespace gloo_bypass {

nlohmann::json toJson(const ChannelCounters& c);

}  // namespace gloo_bypass
