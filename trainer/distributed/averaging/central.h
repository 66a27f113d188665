// A synchronous parameter server at rank 0 (Li et al., Scaling Distributed Machine Learning with the Parameter Server,
// 2014, with every worker waited for): gradients go to rank 0, which alone has an optimiser's state; parameters come
// back. Rank 0 trains, too.
#pragma once

#include "trainer/distributed/averaging/averaging.h"

namespace gloo_bypass::trainer {

class Central final : public Averaging {
 public:
  using Averaging::Averaging;

  // Of the mean gradient, at rank 0, with the update: nothing before. Returns the norm there, elsewhere that of this
  // rank's own.
  double clipGradients(double maxNorm) override;
  void updateParameters() override;
  bool ranksAgree() const override { return true; }
  RankState rankState() const override { return {}; }  // rank 0's are the checkpoint's

 private:
  void gatherGradients();
  bool isGathered_ = false;  // in this step
};

}  // namespace gloo_bypass::trainer
