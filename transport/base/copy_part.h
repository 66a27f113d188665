// Copies a part of a message when its next part follows in memory and is copied soon. One end is the user's memory,
// seldom in the cache. A processor starts its prefetching anew for each part, and so waits for memory often: this
// function prefetches kAhead further on. It leaves a long part to the C library, which copies cached memory faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gloo_bypass {

// The end that is in the user's memory.
enum class ColdEnd : std::uint8_t { kSource, kDestination };

template <ColdEnd cold>
void copyPart(std::byte* to, std::span<const std::byte> from) {
  constexpr std::size_t kLong = 16'384, kAhead = 2048, kCacheLine = 64;
  // May point beyond the message: prefetching an unmapped address does nothing.
  const auto ahead = reinterpret_cast<std::uintptr_t>(cold == ColdEnd::kSource ? from.data() : to) + kAhead;
  std::size_t at = 0;
  for (; from.size() < kLong && from.size() - at >= kCacheLine; at += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + at), cold == ColdEnd::kSource ? 0 : 1);
    std::memcpy(to + at, from.data() + at, kCacheLine);
  }
  if (at < from.size()) std::memcpy(to + at, from.data() + at, from.size() - at);
}

}  // namespace gloo_bypass
