// Where the bytes of a message go, in whatever parts they arrive: the one place that every back-end has for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/copy_part.h"
#include "transport/channel/message.h"

namespace gloo_bypass {

// `bytes` lie in the message from `offset` on; the message fits the receive (receive_fit.h).
inline void place(const ReceiveRequest& receive, std::uint64_t remoteOffset, std::uint64_t offset,
                  std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (receive.consumer.consume != nullptr) {
    receive.consumer.consume(receive.consumer.context, static_cast<std::size_t>(offset), bytes);
    return;
  }
  copyPart<ColdEnd::kDestination>(receive.data + (receive.persistent ? remoteOffset : 0) + offset, bytes);
}

}  // namespace gloo_bypass
