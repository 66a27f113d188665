#include "tools/all_reduce_perf/computation.h"

#include <algorithm>
#include <chrono>

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSize = 96;  // three matrices of 36 KiB: beyond the first cache, within the second

}  // namespace

Computation::Computation() : a_(kSize * kSize, 1.0f / kSize), b_(kSize * kSize, 1.0f), product_(kSize * kSize, 0.0f) {}

void Computation::run(std::uint64_t parts) {
  for (; parts > 0; --parts) {
    const float* row = &a_[nextRow_ * kSize];
    float* out = &product_[nextRow_ * kSize];
    std::fill_n(out, kSize, 0.0f);
    for (std::size_t k = 0; k < kSize; ++k) {
      const float factor = row[k];
      const float* other = &b_[k * kSize];
      for (std::size_t column = 0; column < kSize; ++column) out[column] += factor * other[column];
    }
    nextRow_ = (nextRow_ + 1) % kSize;
  }
  // The product is looked at, so that no compiler leaves it out.
  volatile float seen = product_[nextRow_];
  (void)seen;
}

std::chrono::nanoseconds Computation::fastest(std::uint64_t parts, int times) {
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < times; ++i) {
    const auto start = Clock::now();
    run(parts);
    best = std::min(best, std::chrono::nanoseconds(Clock::now() - start));
  }
  return best;
}

}  // namespace gloo_bypass
