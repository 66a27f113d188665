#include "trainer/optimizer/optimizer.h"

#include <torch/optim/adamw.h>
// After adamw.h: in 1.13 it does not include what it uses.
#include <torch/nn/utils/clip_grad.h>

#include "plugin/compatibility/torch/optimizer_state.h"

namespace gloo_bypass::trainer {

struct AdamW::Torch {
  torch::optim::AdamW optimizer;
};

namespace {

torch::optim::AdamWOptions adamWOptions(const Options& options) {
  return torch::optim::AdamWOptions(options.learningRate)
      .betas({options.beta1, options.beta2})
      .eps(options.epsilon)
      .weight_decay(options.weightDecay);
}

}  // namespace

AdamW::AdamW(std::vector<at::Tensor> parameters, const Options& options)
    : torch_(new Torch{torch::optim::AdamW(parameters, adamWOptions(options))}), parameters_(std::move(parameters)) {
  for (const auto& parameter : parameters_) {
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    state->step(0);
    state->exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve).set_requires_grad(false));
    state->exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve).set_requires_grad(false));
    firstMoments_.push_back(state->exp_avg());
    secondMoments_.push_back(state->exp_avg_sq());
    auto& states = torch_->optimizer.state();
    states[torch_version::stateKey(states, parameter)] = std::move(state);
  }
  if (options.layerDrop > 0) {
    stepsOfParameters_.resize(parameters_.size());
  }
}

AdamW::~AdamW() = default;

void AdamW::step() {
  torch_->optimizer.step();
  for (size_t i = 0; i < stepsOfParameters_.size(); ++i) {
    stepsOfParameters_[i] += parameters_[i].grad().defined() ? 1 : 0;
  }
}

void AdamW::setLearningRate(double rate) {
  for (auto& group : torch_->optimizer.param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(rate);
  }
}

double AdamW::clipGradients(double maxNorm) { return torch::nn::utils::clip_grad_norm_(parameters_, maxNorm); }

void AdamW::clearGradients() {
  for (auto& parameter : parameters_) {
    parameter.mutable_grad() = at::Tensor();
  }
}

void AdamW::setStepCount(int64_t steps) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& states = torch_->optimizer.state();
    auto& state = *states.at(torch_version::stateKey(states, parameters_[i]));
    static_cast<torch::optim::AdamWParamState&>(state).step(
        stepsOfParameters_.empty() ? steps : static_cast<int64_t>(stepsOfParameters_[i]));
  }
}

}  // namespace gloo_bypass::trainer
