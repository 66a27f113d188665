// PyTorch's own AdamW over a model's parameters, with its state reachable for checkpoints.
//
// One thread at a time. The state exists from the start (PyTorch makes it at the first step), so that a checkpoint
// and a broadcast need no special case before it. Virtual is what differs where the optimiser's weights are not the
// model's parameters themselves (master_weights.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, const Options& options);
  virtual ~AdamW();
  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;

  virtual void step();
  // Of the steps from here on.
  void setLearningRate(double rate);
  // Scales all gradients so that their common norm is at most maxNorm; returns the norm before.
  virtual double clipGradients(double maxNorm);
  // Before clipGradients() and step(), where ranks hold parts of the gradients: what step() decides by all of them it
  // asks `isAnywhere`, which says whether it holds at any rank.
  virtual void takeGradients(const std::function<bool(bool)>& /*isAnywhere*/) {}
  // Forgets the gradients; the next backward makes them anew.
  virtual void clearGradients();

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // First and second moments, in the parameters' order; aliases of what step() uses.
  const std::vector<at::Tensor>& firstMoments() const { return firstMoments_; }
  const std::vector<at::Tensor>& secondMoments() const { return secondMoments_; }
  virtual void setStepCount(int64_t steps);
  // How many steps each parameter has done, for a resumed run, where a step may leave some out (--layer-drop): those
  // without a gradient. To be filled before setStepCount(), which takes these then; empty where all do all.
  std::span<double> stepsOfParameters() { return stepsOfParameters_; }

  // The weights that step() updates where they are not what the model computes with, in their order; empty: they are.
  virtual std::vector<at::Tensor> masters() const { return {}; }
  // To be called when the weights have got values from elsewhere: brings the model's parameters up to date.
  virtual void weightsChanged() {}
  // What backward is to start from: the loss, perhaps times a factor that step() and clipGradients() take out of the
  // gradients again.
  virtual at::Tensor scaled(const at::Tensor& loss) const { return loss; }
  // That factor, of the next step.
  virtual double lossScale() const { return 1; }
  // Before each backward; isLast: of a step.
  virtual void beginBackward(bool /*isLast*/) {}
  // Sums of gradients that the optimiser keeps beside the model's own.
  virtual std::vector<at::Tensor> gradientSums() const { return {}; }
  // What a resumed run needs of that factor; aliases what step() uses.
  virtual std::span<double> scalerState() { return {}; }
  // How many steps in a row, up to the last one, were left out because a gradient was not finite: the weights are as
  // before them.
  virtual int64_t stepsLeftOut() const { return 0; }
  // Fields of a step's record and of the summary, after step().
  virtual void addMetrics(nlohmann::json& /*record*/) const {}

 private:
  struct Torch;  // keeps the heavy headers out of this one
  std::unique_ptr<Torch> torch_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> firstMoments_, secondMoments_;
  std::vector<double> stepsOfParameters_;
};

}  // namespace gloo_bypass::trainer
