// ZeRO: data parallelism without redundant copies (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", section 5).
//
// Stage 1 (P_os) shards the optimiser's state: every rank reduces all gradients to their owners (reduce-scatter),
// updates its shard of the parameters, and gathers the others' shards (all-gather). Stage 2 (P_os+g) frees gradients as
// soon as they are reduced, after every micro-batch. Stage 3 (P_os+g+p) holds a unit's parameters only around its
// forward and its backward, gathered for each while the one before it is computed. A unit is a transformer block, or
// the embeddings with the final norm (Gpt2::units).
//
// All stages add gradients in the ranks' order: they compute the same bits, and with two ranks DDP's. One thread; hooks
// of autograd run on it too, since all is on CPU.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/distributed/group_communicator.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/distributed/sharding/collectives.h"
#include "trainer/distributed/sharding/flat_unit.h"
#include "trainer/distributed/sharding/unit_gather.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class ShardedParallel : public Parallelism {
 public:
  // Broadcasts rank 0's `weights`. They are the model's own parameters, or fp32 masters, of which this rank keeps its
  // shards in the optimiser: their memory is given back. `units` is of layOutUnits() with the options' stage, and the
  // optimiser's tensors are theirs, or masters of theirs; all references but `weights` must outlive it.
  ShardedParallel(Gpt2& model, const Gpt2& weights, AdamW& optimizer, std::vector<FlatUnit>& units,
                  GroupCommunicator& communicator, const Options& options);
  ~ShardedParallel() override;

  int64_t learningBackwards() const override { return 1; }
  void beforeBackward(bool synchronise, const at::Tensor& loss) override;
  double clipGradients(double maxNorm) override;
  void updateParameters() override;

  int64_t synchronisedBytes(const std::vector<at::Tensor>& parameters) const override;
  HeldBytes heldBytes(const std::vector<at::Tensor>& parameters) const override;
  bool holdsParts() const override { return true; }
  at::Tensor whole(StateKind kind, size_t index) override;
  at::Tensor wholeParameter(const at::Tensor& held, size_t index) override;
  void loadMoments(const MomentSource& source) override;

 private:
  class Residence;  // stage 3: a unit's parameters come and go
  struct Hooks;     // keeps autograd's headers out of this one
  struct Reduction {
    PendingCollective pending;
    size_t unit;
    int64_t begin;  // in the shard
  };

  void receiveWeights(size_t unit, const Gpt2& weights, const std::vector<size_t>& indices);
  void gradientReady(size_t unit);
  void reduce(size_t unit);
  void settleOldest();
  void settleAll();
  void takeGradients();
  // The whole unit from the ranks' shards; ends what gatherAhead() began.
  void gather(size_t unit);
  // Stage 3: begins with the unit that is gathered next.
  void gatherAhead(size_t unit);
  // The model's parameter `index` in the flat tensor of the ranks' shards like `shard`, gathered by all ranks.
  at::Tensor wholeOf(const at::Tensor& shard, size_t index);
  // Of the unit's shard, such that all ranks' pieces fit a bucket together.
  std::vector<Piece> piecesOf(size_t unit) const;

  std::vector<FlatUnit>& units_;
  GroupCommunicator& communicator_;
  int64_t stage_, pieceBytes_;
  std::vector<std::pair<size_t, size_t>> places_;  // of the model's i-th parameter: unit, index there
  std::unique_ptr<Hooks> hooks_;
  std::unique_ptr<Residence> residence_;

  bool isReducing_ = false;  // in this micro-batch's backward
  bool isFinishQueued_ = false;
  std::vector<size_t> gradientsReady_;  // by unit, in this backward
  std::vector<at::Tensor>
      localGradients_;             // stage 1, by unit: (N k), of which the own part becomes the ranks' common gradient
  std::vector<char> accumulates_;  // stage 2, 3, by unit: the shard's gradient holds an earlier micro-batch's
  std::deque<Reduction> reductions_;
  std::optional<std::pair<size_t, UnitGather>> ahead_;  // the unit, and its gathering under way

  at::Tensor gathered_, gatheredOf_;  // of whole() and wholeParameter(): (N k), of which shards (k)
};

}  // namespace gloo_bypass::trainer
