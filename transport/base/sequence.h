// Sequence arithmetic: the wire carries the low 32 bits of a 64-bit counter. The receiver restores the whole number
// from a nearby one that it knows.
#pragma once

#include <cstdint>

namespace gloo_bypass {

constexpr std::uint32_t truncateSequence(std::uint64_t sequence) { return static_cast<std::uint32_t>(sequence); }

// The number nearest to `near` (less than 2^31 away) that has the low bits `wire`; 0 if that would be negative.
constexpr std::uint64_t expandSequence(std::uint32_t wire, std::uint64_t near) {
  const auto delta = static_cast<std::int32_t>(wire - static_cast<std::uint32_t>(near));
  if (delta < 0 && near < static_cast<std::uint64_t>(-static_cast<std::int64_t>(delta))) return 0;
  return near + static_cast<std::uint64_t>(static_cast<std::int64_t>(delta));
}

// The smallest power of two that is at least `n` (n <= 2^63).
constexpr std::uint64_t ceilPowerOfTwo(std::uint64_t n) {
  std::uint64_t power = 1;
  while (power < n) power <<= 1;
  return power;
}

}  // namespace gloo_bypass
