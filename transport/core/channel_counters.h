// Sums of channels' counters, whichever back-end counted. Pure.
#pragma once

#include "transport/core/message.h"

namespace gloo_bypass {

// Round-trip times and windows are of one channel only, and not summed.
ChannelCounters& operator+=(ChannelCounters& sum, const ChannelCounters& c);

}  // namespace gloo_bypass
