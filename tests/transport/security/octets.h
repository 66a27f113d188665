// Bytes for tests of transport/security: from hexadecimal digits, and by pattern.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "transport/security/secret.h"

namespace gloo_bypass::security::test {

using Octets = std::vector<std::byte>;

inline Octets fromHex(std::string_view digits) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Octets out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<std::byte>(value(digits[i]) << 4 | value(digits[i + 1])));
  }
  return out;
}

// Other values for each `first`.
inline Octets pattern(std::size_t length, unsigned first) {
  Octets out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((first + 7 * i + i / 256) & 0xff);
  return out;
}

template <typename Array>
Array arrayOf(const Octets& bytes) {
  Array out{};
  std::ranges::copy(bytes, out.begin());
  return out;
}

inline Secret secretOf(const Octets& bytes) {
  Secret out;
  std::ranges::copy(bytes, out.writable().begin());
  return out;
}

inline Octets copyOf(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace gloo_bypass::security::test
