// How ranks train one model together: what a step does besides its own forward and backward.
//
// The class itself is a single rank's way, which has nobody to meet. Each method of the literature derives from it.
// For every step beginStep() and planPasses(); for every forward beforeForward(), for every backward beforeBackward(),
// in the planned order; then, once a step, completeBackward(), clipGradients() where asked for, and updateParameters().
// One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "trainer/distributed/rank_state.h"
#include "trainer/metrics/metrics.h"
#include "trainer/optimizer/optimizer.h"

namespace gloo_bypass::trainer {

// What a checkpoint holds for each of the model's parameters: the weights that the optimiser updates, and its moments.
enum class StateKind { kWeight, kFirstMoment, kSecondMoment };
using MomentSource = std::function<at::Tensor(StateKind kind, size_t index)>;

// A micro-batch's forward or backward.
struct Pass {
  enum class Kind { kForward, kBackward } kind;
  int64_t micro;
  bool operator==(const Pass&) const = default;
};

struct Interval {
  std::chrono::steady_clock::time_point begin, end;
};

class Parallelism {
 public:
  // Keeps a reference to the optimiser.
  explicit Parallelism(AdamW& optimizer) : optimizer_(optimizer) {}
  virtual ~Parallelism() = default;
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;

  // Before a step's first micro-batch; from 0.
  virtual void beginStep(int64_t /*step*/) {}
  // In what order a step's forwards and backwards run: one backward for each forward, the micro-batches' backwards in
  // their order.
  virtual std::vector<Pass> planPasses(int64_t microBatches);
  // synchronise: for a step's last micro-batch. After its backward all ranks have the same gradients.
  virtual void beforeForward(bool /*synchronise*/) {}
  virtual void beforeBackward(bool /*synchronise*/, const at::Tensor& /*loss*/) {}
  // After a step's last backward: what ranks still owe each other, and what `metrics` has of the loss.
  virtual void completeBackward(StepMetrics& /*metrics*/) {}

  // Scales all gradients so that their common norm is at most maxNorm; returns the norm before.
  virtual double clipGradients(double maxNorm) { return optimizer_.clipGradients(maxNorm); }
  // Of the optimiser's steps from here on.
  virtual void setLearningRate(double rate) { optimizer_.setLearningRate(rate); }
  // The optimiser's step; forgets the gradients.
  virtual void updateParameters() {
    optimizer_.step();
    optimizer_.clearGradients();
  }

  // Whether what the model computes here is the loss of this rank's samples.
  virtual bool hasLoss() const { return true; }
  // So many of the first backwards decide how the later ones add up gradients.
  virtual int64_t learningBackwards() const { return 0; }
  // When this rank only waited for others in forwards, backwards and completeBackward(), since the last call; empty
  // where that is unknown.
  virtual std::vector<Interval> takeWaits() { return {}; }

  // Of the step that updateParameters() ended.
  virtual void addMetrics(nlohmann::json& /*record*/) const {}
  // At all ranks after the same step. From then on the state below is what a resumed run continues with.
  virtual void beforeCheckpoint() {}
  // Once, after the last step: all ranks have the same parameters then, whatever they had before.
  virtual void finish() {}
  // Of the run, after finish().
  virtual void addSummary(nlohmann::json& /*record*/) const {}
  // Whether all ranks have the same parameters after this step.
  virtual bool ranksAgree() const { return true; }
  // What this rank keeps for itself, beside the common parameters and moments.
  virtual RankState rankState() const { return {}; }

  // Gradient bytes that a synchronising backward of the model with these parameters hands to the process group.
  virtual int64_t synchronisedBytes(const std::vector<at::Tensor>& parameters) const;
  // Call it before updateParameters(), while the gradients are there.
  virtual HeldBytes heldBytes(const std::vector<at::Tensor>& parameters) const;

  // For files and digests: whether ranks hold parts of the state, so that all of them must call whole(), in the same
  // order.
  virtual bool holdsParts() const { return false; }
  // What the optimiser holds for the model's parameter `index` (named() order), whole; alive until the next call.
  virtual at::Tensor whole(StateKind kind, size_t index);
  // The model's parameter `index` itself, whole; `held` is this rank's part of it. Alive until the next call.
  virtual at::Tensor wholeParameter(const at::Tensor& held, size_t /*index*/) { return held; }
  // Fills the optimiser's moments from rank 0's source, which gives them in the parameters' shapes; the others' is
  // empty. Where ranks hold parts, they all have theirs then; else rank 0 alone.
  virtual void loadMoments(const MomentSource& source);

 protected:
  AdamW& optimizer_;
};

}  // namespace gloo_bypass::trainer
