// Random numbers as a function of where in a run they are drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

// Draws of 16 bits, many and fast: the words of SplitMix64 (Steele et al. 2014) under that seed, the lowest bits first.
class ShortDraws {
 public:
  explicit ShortDraws(const DrawPlace& place) : state_(seedAt(place)) {}
  // Four come of a word: of the last one some may be lost.
  void next(std::span<uint16_t> draws);

 private:
  uint64_t state_;
};

}  // namespace gloo_bypass::trainer
