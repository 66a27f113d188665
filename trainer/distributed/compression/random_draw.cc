#include "trainer/distributed/compression/random_draw.h"

#include <algorithm>
#include <cstring>

#include <ATen/CPUGeneratorImpl.h>

#include "transport/base/flat_map.h"

namespace gloo_bypass::trainer {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t mixed(uint64_t z) { return mixBits(z + kGolden); }

}  // namespace

uint64_t seedAt(const DrawPlace& place) {
  uint64_t z = mixed(place.seed);
  z = mixed(z ^ static_cast<uint64_t>(place.step));
  z = mixed(z ^ static_cast<uint64_t>(place.rank + 1));
  return mixed(z ^ place.parameter) >> 1;
}

at::Generator generatorAt(const DrawPlace& place) { return at::detail::createCPUGenerator(seedAt(place)); }

void ShortDraws::next(std::span<uint16_t> draws) {
  constexpr std::size_t kOfAWord = sizeof(state_) / sizeof(uint16_t);
  for (std::size_t i = 0; i < draws.size(); i += kOfAWord, state_ += kGolden) {
    const uint64_t word = mixed(state_);
    const auto to = draws.subspan(i, std::min(kOfAWord, draws.size() - i));
    std::memcpy(to.data(), &word, to.size_bytes());
  }
}

}  // namespace gloo_bypass::trainer
