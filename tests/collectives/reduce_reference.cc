#include "tests/collectives/reduce_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace gloo_bypass::collectives {
namespace {

// More than twice the digits of a double, and a wider exponent: rounding a sum, product or quotient of doubles twice
// gives what rounding it once would.
#ifdef __SIZEOF_FLOAT128__
__extension__ typedef __float128 Exact;
#else
using Exact = long double;
static_assert(std::numeric_limits<long double>::digits >= 113);
#endif
__extension__ typedef __int128 Wide;

// A number of 1 sign bit, some exponent bits and `mantissaBits`.
struct Layout {
  int mantissaBits, smallestExponent, largestExponent;  // of normal numbers
};
constexpr Layout kFloat16{10, -14, 15}, kBfloat16{7, -126, 127};

float decoded(Layout layout, std::uint16_t bits) {
  const int mantissa = bits & ((1 << layout.mantissaBits) - 1);
  const int exponent = (bits & 0x7fff) >> layout.mantissaBits;
  const int infinite = layout.largestExponent - layout.smallestExponent + 2;
  double value = 0;
  if (exponent == infinite) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, layout.smallestExponent - layout.mantissaBits);
  } else {
    value =
        std::ldexp(mantissa + (1 << layout.mantissaBits), layout.smallestExponent + exponent - 1 - layout.mantissaBits);
  }
  return static_cast<float>((bits & 0x8000) != 0 ? -value : value);
}

// Multiples of the last place's unit, to nearest even.
std::uint16_t encoded(Layout layout, float value) {
  const std::uint32_t infinity = static_cast<std::uint32_t>(layout.largestExponent - layout.smallestExponent + 2)
                                 << layout.mantissaBits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1u << (layout.mantissaBits - 1));
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent =
      magnitude == 0 ? layout.smallestExponent : std::max(layout.smallestExponent, std::ilogb(magnitude));
  const double units = std::nearbyint(std::ldexp(magnitude, layout.mantissaBits - exponent));
  // A normal number has its first digit in the exponent's lowest bit, so that rounding up carries into it.
  const double bits = std::ldexp(exponent - layout.smallestExponent, layout.mantissaBits) + units;
  return static_cast<std::uint16_t>(sign | (bits >= infinity ? infinity : static_cast<std::uint32_t>(bits)));
}

// One step, rounded to T.
template <typename T>
T floatStep(Reduction reduction, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return static_cast<T>(Exact(a) + Exact(b));
    case Reduction::kProduct:
      return static_cast<T>(Exact(a) * Exact(b));
    case Reduction::kMin:
      return b < a ? b : a;
    case Reduction::kMax:
      return a < b ? b : a;
    default:
      std::abort();
  }
}

template <typename T, typename Decode>
T floatReference(Reduction reduction, std::span<const std::uint64_t> inputs, int ranks, Decode decode) {
  T value = decode(inputs[0]);
  for (const std::uint64_t input : inputs.subspan(1)) value = floatStep<T>(reduction, value, decode(input));
  if (reduction == Reduction::kAverage) value = static_cast<T>(Exact(value) / Exact(ranks));
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

// Of integers, sign extended.
Wide integerStep(Reduction reduction, Wide a, Wide b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kProduct:
      return a * b;
    case Reduction::kMin:
      return b < a ? b : a;
    case Reduction::kMax:
      return a < b ? b : a;
    case Reduction::kBitAnd:
      return a & b;
    case Reduction::kBitOr:
      return a | b;
    case Reduction::kBitXor:
      return a ^ b;
    default:
      std::abort();
  }
}

template <typename T>
std::uint64_t integerReference(Reduction reduction, std::span<const std::uint64_t> inputs) {
  T value = static_cast<T>(inputs[0]);
  for (const std::uint64_t input : inputs.subspan(1)) {
    value = static_cast<T>(integerStep(reduction, value, static_cast<T>(input)));
  }
  return static_cast<std::uint64_t>(value) & (~std::uint64_t{0} >> (64 - 8 * sizeof(T)));
}

bool boolStep(Reduction reduction, bool a, bool b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kBitOr:
      return a || b;
    case Reduction::kProduct:
    case Reduction::kMin:
    case Reduction::kBitAnd:
      return a && b;
    case Reduction::kBitXor:
      return a != b;
    default:
      std::abort();
  }
}

}  // namespace

float decodedFloat16(std::uint16_t bits) { return decoded(kFloat16, bits); }
std::uint16_t encodedFloat16(float value) { return encoded(kFloat16, value); }
float decodedBfloat16(std::uint16_t bits) { return decoded(kBfloat16, bits); }
std::uint16_t encodedBfloat16(float value) { return encoded(kBfloat16, value); }

std::uint64_t referenceOf(Reduction reduction, ElementType type, std::span<const std::uint64_t> inputs, int ranks) {
  const auto half = [](std::uint64_t bits) { return decodedFloat16(static_cast<std::uint16_t>(bits)); };
  const auto bfloat = [](std::uint64_t bits) { return decodedBfloat16(static_cast<std::uint16_t>(bits)); };
  const auto single = [](std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); };
  const auto twice = [](std::uint64_t bits) { return std::bit_cast<double>(bits); };
  switch (type) {
    case ElementType::kBool: {
      bool value = inputs[0] != 0;
      for (const std::uint64_t input : inputs.subspan(1)) value = boolStep(reduction, value, input != 0);
      return value ? 1 : 0;
    }
    case ElementType::kUint8:
      return integerReference<std::uint8_t>(reduction, inputs);
    case ElementType::kInt8:
      return integerReference<std::int8_t>(reduction, inputs);
    case ElementType::kInt16:
      return integerReference<std::int16_t>(reduction, inputs);
    case ElementType::kInt32:
      return integerReference<std::int32_t>(reduction, inputs);
    case ElementType::kInt64:
      return integerReference<std::int64_t>(reduction, inputs);
    case ElementType::kFloat16:
      return encodedFloat16(floatReference<float>(reduction, inputs, ranks, half));
    case ElementType::kBfloat16:
      return encodedBfloat16(floatReference<float>(reduction, inputs, ranks, bfloat));
    case ElementType::kFloat32:
      return std::bit_cast<std::uint32_t>(floatReference<float>(reduction, inputs, ranks, single));
    case ElementType::kFloat64:
      return std::bit_cast<std::uint64_t>(floatReference<double>(reduction, inputs, ranks, twice));
  }
  std::abort();
}

}  // namespace gloo_bypass::collectives
