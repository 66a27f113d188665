// Distributed data parallelism by PyTorch's own reducer, driven as torch.nn.parallel.DistributedDataParallel does.
//
// At construction: checks that all ranks have the same parameters' shapes and broadcasts rank 0's values. Then, for
// every micro-batch, what Parallelism says. With synchronise = false (no_sync) gradients only accumulate. One thread.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class DataParallel final : public Parallelism {
 public:
  // Keeps references to the model's parameters and the communicator, which must outlive it.
  DataParallel(const Gpt2& model, AdamW& optimizer, GroupCommunicator& communicator, const Options& options);
  ~DataParallel() override;

  int64_t learningBackwards() const override;
  void beforeForward(bool synchronise) override;
  void beforeBackward(bool synchronise, const at::Tensor& loss) override;
  void beginStep(int64_t step) override;
  void updateParameters() override;
  void addMetrics(nlohmann::json& record) const override;
  RankState rankState() const override;

 private:
  struct Torch;  // keeps c10d's headers out of this one
  std::unique_ptr<Torch> torch_;
};

}  // namespace gloo_bypass::trainer
