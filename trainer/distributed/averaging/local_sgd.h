// Several steps of each rank on its own, then a meeting of all.
#pragma once

#include "trainer/distributed/averaging/averaging.h"

namespace gloo_bypass::trainer {

// The mean of the parameters each H steps (Stich, Local SGD Converges Fast and Communicates Little, 2019, algorithm 1;
// McMahan et al., FedAvg, 2017). AdamW's moments stay each rank's own.
class LocalSgd : public Averaging {
 public:
  LocalSgd(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, int64_t innerSteps)
      : Averaging(model, optimizer, communicator), innerSteps_(innerSteps) {}

  void updateParameters() final;
  bool ranksAgree() const final { return (step() + 1) % innerSteps_ == 0; }

 protected:
  // All ranks meet: afterwards they have the same parameters.
  virtual void meet();

 private:
  const int64_t innerSteps_;
};

// Each meeting is a step of an outer optimiser, SGD with Nesterov momentum, on the way that the ranks have gone since
// the last one (Douillard et al., DiLoCo, 2023, algorithm 1: the outer gradient is the parameters then minus the mean
// now).
class DiLoCo final : public LocalSgd {
 public:
  DiLoCo(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, const AveragingOptions& options);

  RankState rankState() const override;

 protected:
  void meet() override;

 private:
  const double rate_, momentum_;
  at::Tensor start_;     // (n): the parameters after the last meeting
  at::Tensor velocity_;  // (n): the outer momentum
};

}  // namespace gloo_bypass::trainer
