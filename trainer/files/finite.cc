#include "trainer/files/finite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace gloo_bypass::trainer {
namespace {

constexpr size_t kBlock = 1024;  // elements looked at before the first bad one is asked for

template <typename Bits>
Bits bitsAt(std::span<const std::byte> bytes, size_t index) {
  Bits bits;
  std::memcpy(&bits, bytes.data() + index * sizeof bits, sizeof bits);
  return bits;
}

// `exponent`: the bits of the exponent, all set in what is not finite. What is left of them below is the fraction: 0 in
// an infinity.
template <typename Bits>
std::string firstNotFinite(std::span<const std::byte> bytes, Bits exponent) {
  const size_t elements = bytes.size() / sizeof(Bits);
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, elements);
    unsigned found = 0;
    for (size_t i = begin; i < end; ++i) {
      found |= (bitsAt<Bits>(bytes, i) & exponent) == exponent ? 1u : 0u;
    }
    for (size_t i = begin; found != 0 && i < end; ++i) {
      const auto bits = bitsAt<Bits>(bytes, i);
      if ((bits & exponent) != exponent) {
        continue;
      }
      const bool isNan = (bits & (exponent ^ static_cast<Bits>(std::numeric_limits<Bits>::max() >> 1))) != 0;
      const bool isNegative = bits >> (8 * sizeof bits - 1) != 0;
      return fmt::format("{} at element {}", isNan ? "nan" : isNegative ? "-inf" : "inf", i);
    }
  }
  return {};
}

}  // namespace

std::string firstNotFinite(std::string_view dtype, std::span<const std::byte> bytes) {
  if (dtype == "F64") {
    return firstNotFinite<uint64_t>(bytes, 0x7ff0'0000'0000'0000);
  }
  if (dtype == "F32") {
    return firstNotFinite<uint32_t>(bytes, 0x7f80'0000);
  }
  if (dtype == "BF16") {
    return firstNotFinite<uint16_t>(bytes, 0x7f80);
  }
  return dtype == "F16" ? firstNotFinite<uint16_t>(bytes, 0x7c00) : std::string();
}

const char* nameOfNotFinite(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

}  // namespace gloo_bypass::trainer
