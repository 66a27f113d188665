// Random numbers as a function of where in a run they are drawn.
#pragma once

#include <cstddef>
#include <cstdint>

#include <ATen/core/Generator.h>

namespace gloo_bypass::trainer {

// What a draw is for. `rank` -1: the same at all ranks.
struct DrawPlace {
  uint64_t seed = 0;
  int64_t step = 0;
  int rank = -1;
  std::size_t parameter = 0;
};

// A seed of 63 bits, by SplitMix64's finaliser: places that differ in anything share nothing.
uint64_t seedAt(const DrawPlace& place);
// PyTorch's CPU generator under that seed.
at::Generator generatorAt(const DrawPlace& place);

}  // namespace gloo_bypass::trainer
