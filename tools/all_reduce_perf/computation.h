// Work between two all-reduces, as programs have it: products of matrices that fit a core's caches, and no sleep.
// Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace gloo_bypass {

class Computation {
 public:
  Computation();
  // So many parts of a product; a part takes a few microseconds.
  void run(std::uint64_t parts);
  // How long so many parts take: the shortest of some times, in the others somebody else may have had the core.
  std::chrono::nanoseconds fastest(std::uint64_t parts, int times);

 private:
  std::vector<float> a_, b_, product_;
  std::size_t nextRow_ = 0;
};

}  // namespace gloo_bypass
