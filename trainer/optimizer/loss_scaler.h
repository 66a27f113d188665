// Loss scaling: the loss is multiplied by a factor before backward, so that small gradients do not become zero in fp16,
// and the gradients are divided by it before the optimiser's step (Micikevicius et al., Mixed Precision Training, ICLR
// 2018, section 3.2).
//
// The dynamic factor follows torch.cuda.amp.GradScaler: a step whose gradients have an infinity or a NaN is left out
// and the factor halved; after `interval` good steps in a row it is doubled. Pure: it never sees a gradient. One
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

class LossScaler {
 public:
  explicit LossScaler(const PrecisionOptions& options);

  // false: --loss-scale off. The factor is 1 then, and no step is left out, whatever its gradients are.
  bool isOn() const { return mode_ != Mode::kOff; }
  double scale() const { return state_[kScale]; }
  int64_t skippedSteps() const { return static_cast<int64_t>(state_[kSkipped]); }
  // Up to the last step, of this process's.
  int64_t skippedInARow() const { return skippedInARow_; }

  // At the end of a step; foundInfinity: it was left out. Does nothing when off.
  void update(bool foundInfinity);

  // A resumed run needs the factor, the good steps since it changed and the steps left out. Empty when off. Lives as
  // long as this object, which works on it.
  std::span<double> state() { return isOn() ? std::span<double>(state_) : std::span<double>(); }

 private:
  enum class Mode { kOff, kConstant, kDynamic };
  static constexpr size_t kScale = 0, kGoodSteps = 1, kSkipped = 2;
  Mode mode_ = Mode::kOff;
  int64_t interval_, skippedInARow_ = 0;
  std::array<double, 3> state_{1, 0, 0};
};

}  // namespace gloo_bypass::trainer
