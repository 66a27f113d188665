#include "trainer/model/layer_drop.h"

#include <ATen/core/grad_mode.h>

#include "transport/base/flat_map.h"

namespace gloo_bypass::trainer {

bool LayerDrop::leavesOut(size_t unit) const {
  constexpr double kAll = 0x1p64;
  return static_cast<double>(mixBits(seed_ + unit)) < probability_ * kAll;
}

at::Tensor LayerDrop::run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) {
  const bool isLeftOut = part == ForwardPart::kBlock && at::GradMode::is_enabled() && leavesOut(unit);
  return isLeftOut ? x : compute(x);
}

}  // namespace gloo_bypass::trainer
