#include "trainer/distributed/compression/random_draw.h"

#include <ATen/CPUGeneratorImpl.h>

namespace gloo_bypass::trainer {
namespace {

uint64_t mixed(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

uint64_t seedAt(const DrawPlace& place) {
  uint64_t z = mixed(place.seed);
  z = mixed(z ^ static_cast<uint64_t>(place.step));
  z = mixed(z ^ static_cast<uint64_t>(place.rank + 1));
  return mixed(z ^ place.parameter) >> 1;
}

at::Generator generatorAt(const DrawPlace& place) { return at::detail::createCPUGenerator(seedAt(place)); }

}  // namespace gloo_bypass::trainer
