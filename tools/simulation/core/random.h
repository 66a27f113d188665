// The simulator's random numbers: the emulated fabric's generator, and distributions for scenarios.
#pragma once

#include <cmath>
#include <cstddef>

#include "tools/fabric/core/random.h"

namespace gloo_bypass::sim {

class Random : public fabric::Random {
 public:
  using fabric::Random::Random;

  // Spread evenly over the logarithm: as many values between 1 and 10 as between 10 and 100.
  double logUniform(double low, double high) { return low * std::exp(uniform() * std::log(high / low)); }
  template <typename T, std::size_t N>
  const T& pick(const T (&values)[N]) {
    return values[below(N)];
  }
};

}  // namespace gloo_bypass::sim
