// How ranks train one model together: what a step does besides its own forward and backward.
//
// The class itself is a single rank's way, which has nobody to meet. Each method of the literature derives from it.
// For every step beginStep(); for every micro-batch: beforeForward(), forward, afterForward(), backward; then, once a step, clipGradients() where
// asked for, and updateParameters(). One thread.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "trainer/optimizer.h"
#include "trainer/rank_state.h"

namespace gloo_bypass::trainer {

class Parallelism {
 public:
  // Keeps a reference to the optimiser.
  explicit Parallelism(AdamW& optimizer) : optimizer_(optimizer) {}
  virtual ~Parallelism() = default;
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;

  // Before a step's first micro-batch; from 0.
  virtual void beginStep(int64_t /*step*/) {}
  // synchronise: of a step's last micro-batch, after whose backward all gradients are the ranks' common ones.
  virtual void beforeForward(bool /*synchronise*/) {}
  virtual void afterForward(bool /*synchronise*/) {}

  // Scales all gradients so that their common norm is at most maxNorm; returns the norm before.
  virtual double clipGradients(double maxNorm) { return optimizer_.clipGradients(maxNorm); }
  // Of the optimiser's steps from here on.
  virtual void setLearningRate(double rate) { optimizer_.setLearningRate(rate); }
  // The optimiser's step; forgets the gradients.
  virtual void updateParameters() {
    optimizer_.step();
    optimizer_.clearGradients();
  }

  // Of the step that updateParameters() ended.
  virtual void addMetrics(nlohmann::json& /*record*/) const {}
  // Once, after the last step: all ranks have the same parameters then, whatever they had before.
  virtual void finish() {}
  // Of the run, after finish().
  virtual void addSummary(nlohmann::json& /*record*/) const {}
  // Whether all ranks have the same parameters after this step.
  virtual bool ranksAgree() const { return true; }
  // What this rank keeps for itself, beside the common parameters and moments.
  virtual RankState rankState() const { return {}; }

 protected:
  AdamW& optimizer_;
};

} // namespace gloo_bypass::trainer
