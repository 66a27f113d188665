// Input values whose exact result is known, whatever the order of reduction, and which make mistakes visible: an
// element's value depends on its index (data at a wrong place), on the rank (a rank left out or counted twice) and on
// the iteration (stale data). Small integers, so that every type holds sums and products exactly; integer sums may
// wrap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <gloo/types.h>

#include "tools/all_reduce_perf/perf_options.h"
#include "transport/base/flat_map.h"

namespace gloo_bypass {

class CheckPattern {
 public:
  CheckPattern(ReduceOp op, int ranks, std::uint64_t iteration)
      : op_(op),
        ranks_(static_cast<std::uint64_t>(ranks)),
        seed_(iteration * 0x9e3779b97f4a7c15u),
        // Half holds integers up to 2048 exactly.
        range_(std::clamp<std::uint64_t>(2047 / ranks_, 2, 61)) {}

  std::int64_t input(std::size_t index, int rank) const {
    return valueOf(mix(index), static_cast<std::uint64_t>(rank));
  }

  std::int64_t expected(std::size_t index) const {
    const std::uint64_t mixed = mix(index);
    std::int64_t result = valueOf(mixed, 0);
    for (std::uint64_t rank = 1; rank < ranks_; ++rank) result = reduced(result, valueOf(mixed, rank));
    return result;
  }

 private:
  std::int64_t reduced(std::int64_t a, std::int64_t b) const {
    if (op_ == ReduceOp::kSum) return a + b;
    if (op_ == ReduceOp::kProd) return a * b;
    return op_ == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
  }
  // Neighbouring indices give unrelated values.
  std::uint64_t mix(std::uint64_t index) const { return mixBits(index + seed_ + 0x9e3779b97f4a7c15u); }
  std::int64_t valueOf(std::uint64_t mixed, std::uint64_t rank) const {
    if (op_ != ReduceOp::kProd) return static_cast<std::int64_t>(1 + (mixed + rank * 7) % range_);
    // Two ranks, picked by the element, hold factors; the product stays at 15 at most.
    std::int64_t factor = 1;
    if ((mixed >> 8) % ranks_ == rank) factor *= 2 + static_cast<std::int64_t>(mixed % 4);
    if ((mixed >> 32) % ranks_ == rank) factor *= 3;
    return factor;
  }

  ReduceOp op_;
  std::uint64_t ranks_;
  std::uint64_t seed_;
  std::uint64_t range_;
};

template <typename T>
T toElement(std::int64_t value) {
  if constexpr (std::is_same_v<T, ::gloo::float16>)
    return ::gloo::float16(static_cast<int>(value));
  else
    return static_cast<T>(value);
}

template <typename T>
bool sameElement(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, ::gloo::float16>)
    return a.x == b.x;
  else
    return a == b;
}

template <typename T>
void fillPattern(std::span<T> data, const CheckPattern& pattern, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = toElement<T>(pattern.input(i, rank));
}

template <typename T>
std::uint64_t countWrong(std::span<const T> data, const CheckPattern& pattern) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    wrong += sameElement(data[i], toElement<T>(pattern.expected(i))) ? 0 : 1;
  return wrong;
}

}  // namespace gloo_bypass
