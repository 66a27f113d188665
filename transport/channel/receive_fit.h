// Whether a message fits the receive that it matched. All back-ends use the same error text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/channel/message.h"

namespace gloo_bypass {

// Empty: it fits. Else what is wrong and what to do. `capacity` and `persistent` describe the receive.
std::string misfit(const MessageKey& key, std::size_t capacity, bool persistent, std::uint64_t length,
                   std::uint64_t remoteOffset);

}  // namespace gloo_bypass
