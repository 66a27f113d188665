// The simulator's random numbers: the same on every platform, so that a printed seed repeats a run anywhere.
#pragma once

#include <cmath>
#include <cstdint>

namespace gloo_bypass::sim {

// splitmix64 (Steele, Lea, Flood, 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // [0, 1)
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // [0, n), n > 0
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool chance(double probability) { return probability > 0 && uniform() < probability; }
  // Spread evenly over the logarithm: as many values between 1 and 10 as between 10 and 100.
  double logUniform(double low, double high) { return low * std::exp(uniform() * std::log(high / low)); }
  template <typename T, std::size_t N>
  const T& pick(const T (&values)[N]) {
    return values[below(N)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace gloo_bypass::sim
