// The parameters of a model's unit as one flat tensor. Each rank owns an equal part of it, its shard.
//
// Laid out one after another in the model's order and padded with zeros, so that N shards of equal size result: whole
// tensors are no unit of balance (GPT-2's embedding alone is 47 % of DistilGPT2). FSDP calls this a FlatParameter (Zhao
// et al. 2023, section 4.1). The model's tensors become views of the flat one and stay the same objects. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class FlatUnit {
 public:
  // Moves the parameters' values. ownShard: the shard has memory of its own, so that the whole can be released
  // (ZeRO-3); otherwise it is a view of the whole.
  FlatUnit(std::vector<at::Tensor> parameters, int rank, int ranks, bool ownShard);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const at::Tensor& whole() const { return whole_; }  // (N k): no memory behind it while released
  const at::Tensor& shard() const { return shard_; }  // (k), a leaf: what the optimiser works on
  int64_t shardElements() const { return shard_.numel(); }
  // Part [begin, end) of every rank's shard in `flat` (N k), by rank; views.
  std::vector<at::Tensor> pieces(const at::Tensor& flat, int64_t begin, int64_t end) const;
  // This rank's part of `flat` (N k); a view.
  at::Tensor shardOf(const at::Tensor& flat) const;
  // The i-th parameter's values in `flat`, in its shape; a view.
  at::Tensor viewOf(const at::Tensor& flat, size_t i) const;

  // With a shard of its own only: gives the whole's memory back; the shard keeps this rank's values.
  void release();
  // Memory for the whole again, with undefined values. Nothing where it is there.
  void materialize();
  bool isWhole() const { return isWhole_; }
  // The shard's values from the whole, where the shard has memory of its own.
  void fillShard();
  // Of the values that this rank holds now, padding included.
  int64_t heldBytes() const;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<int64_t> offsets_;
  int rank_, ranks_;
  bool ownShard_, isWhole_ = true;
  at::Tensor whole_, shard_;
};

// Gives a tensor's memory back; it keeps its sizes. Only of a tensor that no other shares it with.
void dropMemory(const at::Tensor& tensor);

// The model's units for ZeRO's stage; none for stage 0.
std::vector<FlatUnit> layOutUnits(const Gpt2& model, int64_t zero, int rank, int ranks);
// This rank's shards of the parameters: what its optimiser works on, unless it has masters.
std::vector<at::Tensor> shardsOf(const std::vector<FlatUnit>& units);

}  // namespace gloo_bypass::trainer
