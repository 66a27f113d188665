// fp32 masters of a model in 16 bits (Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.1).
//
// The optimiser updates the masters, in fp32, and the model's parameters are these, rounded: an update smaller than
// half a unit of the parameter's last place is not lost. Forward, backward and the all-reduce see 16 bits only. One
// thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trainer/model/gpt2.h"
#include "trainer/optimizer/gradient_sums.h"
#include "trainer/optimizer/loss_scaler.h"
#include "trainer/optimizer/optimizer.h"

namespace gloo_bypass::trainer {

// The weights that the optimiser updates, a file fills and a checkpoint keeps: new fp32 tensors for a model in 16 bits,
// the model's own tensors (shared, not copied) for another.
Gpt2 mastersOf(const Gpt2& model);

// The same of single tensors: zeros in fp32 for those in 16 bits.
std::vector<at::Tensor> mastersOf(const std::vector<at::Tensor>& parameters);

// AdamW over `masters`, what mastersOf(parameters) gave. Keeps both.
std::unique_ptr<AdamW> makeOptimizer(std::vector<at::Tensor> parameters, std::vector<at::Tensor> masters,
                                     const Options& options);

class MasterWeightsAdamW final : public AdamW {
 public:
  // The two models' parameters, or a rank's shards of them, in the same order, of the same shapes.
  MasterWeightsAdamW(std::vector<at::Tensor> parameters, std::vector<at::Tensor> masters, const Options& options);

  // Divides the gradients by the scale, then steps the masters and rounds them into the model; does neither where the
  // scaler is on and a gradient is not finite. After an all-reduce all ranks hold the same gradients, infinities
  // included, so all decide alike; where ranks hold shards, takeGradients() has asked the others.
  void step() override;
  double clipGradients(double maxNorm) override;  // of the unscaled gradients
  // Divides the gradients by the scale, into the masters'; once a step.
  void takeGradients(const std::function<bool(bool)>& isAnywhere) override;
  void clearGradients() override;

  std::vector<at::Tensor> masters() const override { return masters_; }
  void weightsChanged() override;
  at::Tensor scaled(const at::Tensor& loss) const override;
  double lossScale() const override { return scaler_.scale(); }
  void beginBackward(bool isLast) override;
  std::vector<at::Tensor> gradientSums() const override;
  int64_t stepsLeftOut() const override { return scaler_.skippedInARow(); }
  std::span<double> scalerState() override { return scaler_.state(); }
  // Only the steps that were not left out count: call after scalerState() has been filled.
  void setStepCount(int64_t steps) override { AdamW::setStepCount(steps - scaler_.skippedSteps()); }
  // "loss_scale" of the last step, "skipped_steps" of the whole run, where there is a scale.
  void addMetrics(nlohmann::json& record) const override;

 private:
  std::vector<at::Tensor> model_, masters_;
  std::optional<GradientSums> sums_;
  LossScaler scaler_;
  double stepScale_;            // of the last step
  bool haveGradients_ = false;  // the masters have this step's, unscaled
  bool foundInfinity_ = false;  // among them
};

}  // namespace gloo_bypass::trainer
