// Random numbers that are the same on every platform, so that a seed repeats a run anywhere.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/base/flat_map.h"

namespace gloo_bypass::fabric {

// splitmix64 (Steele, Lea, Flood, 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return mixBits(state_ += 0x9e3779b97f4a7c15ULL); }
  // [0, 1)
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  // [0, n), n > 0
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  // A probability of 0 draws nothing.
  bool chance(double probability) { return probability > 0 && uniform() < probability; }

 private:
  std::uint64_t state_;
};

// The seed of one of many streams: another name or another seed gives an unrelated stream.
inline std::uint64_t seedOf(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char each : name) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001b3ULL;
  return Random(Random(seed).next() ^ hash).next();
}

}  // namespace gloo_bypass::fabric
