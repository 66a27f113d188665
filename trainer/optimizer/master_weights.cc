#include "trainer/optimizer/master_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

namespace gloo_bypass::trainer {

Gpt2 mastersOf(const Gpt2& model) {
  const auto type = model.named().front().second.scalar_type();
  return type == at::kFloat || type == at::kDouble ? model : Gpt2(model.config(), at::kFloat);
}

std::vector<at::Tensor> mastersOf(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> masters;
  for (const auto& parameter : parameters) {
    const auto type = parameter.scalar_type();
    const bool isItsOwn = type == at::kFloat || type == at::kDouble;
    masters.push_back(isItsOwn ? parameter
                               : at::zeros(parameter.sizes(), at::TensorOptions(at::kFloat)).set_requires_grad(true));
  }
  return masters;
}

std::unique_ptr<AdamW> makeOptimizer(std::vector<at::Tensor> parameters, std::vector<at::Tensor> masters,
                                     const Options& options) {
  if (options.precision.hasMasters()) {
    return std::make_unique<MasterWeightsAdamW>(std::move(parameters), std::move(masters), options);
  }
  return std::make_unique<AdamW>(std::move(parameters), options);
}

MasterWeightsAdamW::MasterWeightsAdamW(std::vector<at::Tensor> parameters, std::vector<at::Tensor> masters,
                                       const Options& options)
    : AdamW(masters, options),
      model_(std::move(parameters)),
      masters_(std::move(masters)),
      scaler_(options.precision),
      stepScale_(scaler_.scale()) {
  if (options.precision.sumsInFp32) {
    sums_.emplace(model_);
  }
}

void MasterWeightsAdamW::beginBackward(bool isLast) {
  if (sums_) {
    sums_->beginBackward(isLast);
  }
}

std::vector<at::Tensor> MasterWeightsAdamW::gradientSums() const {
  return sums_ ? sums_->sums() : std::vector<at::Tensor>();
}

at::Tensor MasterWeightsAdamW::scaled(const at::Tensor& loss) const {
  return scaler_.isOn() ? loss * scaler_.scale() : loss;
}

namespace {

bool itself(bool isHere) { return isHere; }

}  // namespace

// The model's gradients, widened and divided by the scale (GradScaler.unscale_).
void MasterWeightsAdamW::takeGradients(const std::function<bool(bool)>& isAnywhere) {
  if (haveGradients_) {
    return;
  }
  const at::NoGradGuard noGrad;
  const double inverse = 1 / scaler_.scale();
  for (size_t i = 0; i < model_.size(); ++i) {
    if (!model_[i].grad().defined()) {
      continue;
    }
    auto gradient = model_[i].grad().to(at::kFloat);
    if (scaler_.isOn()) {
      foundInfinity_ = foundInfinity_ || !at::isfinite(gradient).all().item<bool>();
      gradient.mul_(inverse);
    }
    masters_[i].mutable_grad() = gradient;
  }
  if (scaler_.isOn()) {
    foundInfinity_ = isAnywhere(foundInfinity_);
  }
  haveGradients_ = true;
}

double MasterWeightsAdamW::clipGradients(double maxNorm) {
  takeGradients(itself);
  return AdamW::clipGradients(maxNorm);
}

void MasterWeightsAdamW::step() {
  takeGradients(itself);
  stepScale_ = scaler_.scale();
  if (!foundInfinity_) {
    AdamW::step();
    weightsChanged();
  }
  scaler_.update(foundInfinity_);
}

void MasterWeightsAdamW::clearGradients() {
  AdamW::clearGradients();
  for (auto& parameter : model_) {
    parameter.mutable_grad() = at::Tensor();
  }
  haveGradients_ = foundInfinity_ = false;
}

void MasterWeightsAdamW::weightsChanged() {
  const at::NoGradGuard noGrad;
  for (size_t i = 0; i < model_.size(); ++i) {
    model_[i].copy_(masters_[i]);
  }
}

void MasterWeightsAdamW::addMetrics(nlohmann::json& record) const {
  if (scaler_.isOn()) {
    record["loss_scale"] = stepScale_;
    record["skipped_steps"] = scaler_.skippedSteps();
  }
}

}  // namespace gloo_bypass::trainer
