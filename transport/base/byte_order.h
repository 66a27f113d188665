// Little-endian integers at unaligned addresses.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace gloo_bypass {

template <typename T>
constexpr T swapToLittle(T value) {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<T>(__builtin_bswap16(value));
  } else if constexpr (sizeof(T) == 4) {
    return static_cast<T>(__builtin_bswap32(value));
  } else {
    return static_cast<T>(__builtin_bswap64(value));
  }
}

template <typename T>
T loadLittle(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return swapToLittle(value);
}

template <typename T>
void storeLittle(std::byte* to, T value) {
  value = swapToLittle(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace gloo_bypass
