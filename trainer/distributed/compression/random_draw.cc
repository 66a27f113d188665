#include "trainer/distributed/compression/random_draw.h"

#include <ATen/CPUGeneratorImpl.h>

#include "transport/base/flat_map.h"

namespace gloo_bypass::trainer {
namespace {

uint64_t mixed(uint64_t z) { return mixBits(z + 0x9E3779B97F4A7C15u); }

}  // namespace

uint64_t seedAt(const DrawPlace& place) {
  uint64_t z = mixed(place.seed);
  z = mixed(z ^ static_cast<uint64_t>(place.step));
  z = mixed(z ^ static_cast<uint64_t>(place.rank + 1));
  return mixed(z ^ place.parameter) >> 1;
}

at::Generator generatorAt(const DrawPlace& place) { return at::detail::createCPUGenerator(seedAt(place)); }

}  // namespace gloo_bypass::trainer
