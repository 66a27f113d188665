// Pipelines: every rank computes some of the blocks, and a step's micro-batches follow each other through the ranks.
//
// GPipe (Huang et al. 2019, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", section
// 2): all forwards of a step, then all backwards; a rank keeps the activations of all M micro-batches. 1F1B (Narayanan
// et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training", section 3.2, with GPipe's flush at the
// end of a step, as Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", section 2.2): rank r of N begins with N-1-r forwards, then one backward after each forward; it keeps
// the activations of at most N-r. Where passes take equally long on all ranks and sending takes nothing, both leave
// each rank idle for (N-1)/(M+N-1) of a step.
//
// Sends never wait; one tensor is received ahead, in each direction. The token embedding is tied to the head: the first
// and the last rank hold it, and add up its gradients once a step.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "trainer/distributed/model_parallel/shared_model.h"

namespace gloo_bypass::trainer {

// Rank `rank`'s passes of a step.
std::vector<Pass> pipelinePasses(ModelParallelism method, int rank, int ranks, int64_t microBatches);

class Pipeline final : public SharedModel, private PartRunner {
 public:
  Pipeline(Gpt2& model, const Gpt2* whole, AdamW& optimizer, ModelMesh mesh, const Options& options);

  bool hasLoss() const override { return isLast(); }
  std::vector<Pass> planPasses(int64_t microBatches) override;
  // Waits until all is sent, adds the embedding's gradients up, and gives all ranks the loss.
  void completeBackward(StepMetrics& metrics) override;

 private:
  struct Incoming {
    at::Tensor tensor;  // outlives its transfer
    std::unique_ptr<Transfer> transfer;
  };
  // What one neighbour sends in a step.
  struct Inbox {
    int64_t announced = 0;  // still to be received, the one ahead not counted
    Incoming ahead;
  };

  bool isFirst() const { return communicator_.rank() == 0; }
  bool isLast() const { return communicator_.rank() + 1 == communicator_.worldSize(); }
  int rankBefore() const { return communicator_.rank() - 1; }
  int rankAfter() const { return communicator_.rank() + 1; }
  void beginForward(int64_t positions) override { positions_ = positions; }
  at::Tensor run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) override;

  // Activations and their gradients are (BT, C).
  void send(const at::Tensor& tensor, int rank);
  at::Tensor take(Inbox& inbox, int from);
  Incoming startReceive(int64_t positions, int from);
  void receiveAhead(Inbox& inbox, int from);

  ModelParallelism method_;
  ModelShare share_;
  at::Tensor tokenEmbedding_;
  int64_t hidden_, positions_, stepPositions_;  // of this forward; of a step's
  Inbox activations_, gradients_;
  std::deque<Incoming> outgoing_;
  size_t mostOutgoing_;
};

}  // namespace gloo_bypass::trainer
