// Ranks that train one model together, each with the part of the parameters that ModelShare gives it: what tensor
// parallelism and pipelines have in common.
//
// Those that share a copy of the model work on the same samples, and each updates what it holds. What they hold alike
// gets the same gradient at each. Where the run has several copies, each with samples of its own, the ranks that hold
// the same part average its gradients as DistributedDataParallel does, beside the last micro-batch's backward. One
// thread; hooks of autograd run on it too, since all is on CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"
#include "trainer/distributed/data_parallel.h"
#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/model_parallel/model_mesh.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class SharedModel : public Parallelism {
 public:
  // Gives every rank its part of rank 0's `whole`, which is null at the others. References must outlive it.
  SharedModel(Gpt2& model, const Gpt2* whole, AdamW& optimizer, ModelMesh mesh, const Options& options);

  int64_t learningBackwards() const override { return copies_ ? copies_->learningBackwards() : 0; }
  void beforeForward(bool synchronise) override;
  void beforeBackward(bool synchronise, const at::Tensor& loss) override;
  double clipGradients(double maxNorm) override;
  void beginStep(int64_t step) override;
  // t_wait_s, of this rank; exchanged_bytes, of activations and their gradients that it handed over.
  void addMetrics(nlohmann::json& record) const override;
  std::vector<Interval> takeWaits() override { return std::move(waits_); }

  int64_t synchronisedBytes(const std::vector<at::Tensor>& parameters) const override {
    return copies_ ? copies_->synchronisedBytes(parameters) : 0;
  }
  bool holdsParts() const override { return true; }
  at::Tensor whole(StateKind kind, size_t index) override { return assembled(Parallelism::whole(kind, index), index); }
  at::Tensor wholeParameter(const at::Tensor& held, size_t index) override { return assembled(held, index); }
  void loadMoments(const MomentSource& source) override;

 protected:
  // What `wait` takes is time that this rank waits for others.
  template <typename Wait>
  void waiting(const Wait& wait) {
    const auto begin = std::chrono::steady_clock::now();
    wait();
    waits_.push_back({begin, std::chrono::steady_clock::now()});
    waitedSeconds_ += std::chrono::duration<double>(waits_.back().end - begin).count();
  }
  void handedOver(const at::Tensor& tensor) { exchangedBytes_ += static_cast<int64_t>(tensor.nbytes()); }

  ModelMesh mesh_;
  GroupCommunicator& communicator_;  // between those that share this rank's copy

 private:
  // From what each rank holds; a rank that holds all of it gives its own.
  at::Tensor assembled(const at::Tensor& held, size_t index);
  // `held` from rank 0's `whole`, which is undefined at the others.
  void distribute(const at::Tensor& held, const at::Tensor& whole, size_t index);

  std::vector<at::Tensor> parameters_;
  std::vector<std::vector<int64_t>> wholeSizes_;
  std::vector<std::vector<HeldPiece>> pieces_;  // by parameter and rank
  at::Tensor assembled_;                        // what was asked for last
  std::unique_ptr<DataParallel> copies_;        // null where there is one
  std::vector<Interval> waits_;
  double waitedSeconds_ = 0;
  int64_t exchangedBytes_ = 0;
};

// The way of the options' method.
std::unique_ptr<SharedModel> makeSharedModel(Gpt2& model, const Gpt2* whole, AdamW& optimizer,
                                             GroupCommunicator& communicator, const Options& options);

}  // namespace gloo_bypass::trainer
