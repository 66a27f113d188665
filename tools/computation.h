// Work between two all-reduces, as programs have it: products of matrices that fit a core's caches, and no sleep.
// Used by one thread.
#pragma once

#include <cstdint>
#include <vector>

namespace gloo_bypass {

class Computation {
 public:
  Computation();
  // So many parts of a product; a part takes a few microseconds.
  void run(std::uint64_t parts);
  // Parts a second while this thread, and whoever shares its core, does nothing else. Takes some 50 ms.
  double measureRate();

 private:
  std::vector<float> a_, b_, product_;
  std::size_t nextRow_ = 0;
};

}  // namespace gloo_bypass
