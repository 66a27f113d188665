// Whether a message fits the receive that it matched; the same words whichever back-end finds out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/channel/message.h"

namespace gloo_bypass {

// Empty: it fits. Else what is wrong and what to do. `capacity` and `persistent` are the receive's.
std::string misfit(const MessageKey& key, std::size_t capacity, bool persistent, std::uint64_t length,
                   std::uint64_t remoteOffset);

}  // namespace gloo_bypass
