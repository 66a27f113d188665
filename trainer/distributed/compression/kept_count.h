// How many elements of a tensor the sparse methods send.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gloo_bypass::trainer {

// The share `ratio` of `count` elements, at least one.
inline int64_t keptCount(int64_t count, double ratio) {
  return std::clamp<int64_t>(static_cast<int64_t>(ratio * static_cast<double>(count)), 1, count);
}

}  // namespace gloo_bypass::trainer
