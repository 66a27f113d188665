#include "trainer/optimizer/loss_scaler.h"

#include <cmath>
#include <string>

namespace gloo_bypass::trainer {
namespace {

constexpr float kGrowth = 2, kBackoff = 0.5;  // GradScaler's growth_factor and backoff_factor

}  // namespace

LossScaler::LossScaler(const PrecisionOptions& options) : interval_(options.lossScaleInterval) {
  if (options.hasDynamicScale()) {
    mode_ = Mode::kDynamic;
    state_[kScale] = static_cast<float>(options.initialLossScale);
  } else if (options.isScaled()) {
    mode_ = Mode::kConstant;
    state_[kScale] = std::stof(options.lossScale);
  }
}

void LossScaler::update(bool foundInfinity) {
  if (!isOn()) {
    return;
  }
  state_[kSkipped] += foundInfinity ? 1 : 0;
  skippedInARow_ = foundInfinity ? skippedInARow_ + 1 : 0;
  if (mode_ == Mode::kConstant) {
    return;
  }
  // aten/src/ATen/native/cuda/AmpKernels.cu, amp_update_scale_cuda_kernel; the factor is an fp32 there, too.
  const auto scale = static_cast<float>(state_[kScale]);
  if (foundInfinity) {
    state_[kScale] = scale * kBackoff;
    state_[kGoodSteps] = 0;
  } else if (++state_[kGoodSteps] == static_cast<double>(interval_)) {
    const float grown = scale * kGrowth;
    state_[kScale] = std::isfinite(grown) ? grown : scale;
    state_[kGoodSteps] = 0;
  }
}

}  // namespace gloo_bypass::trainer
