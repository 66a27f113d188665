// GPT-2 as Hugging Face's GPT2LMHeadModel computes it, on plain ATen calls.
//
// Parameters carry Hugging Face's names and shapes (Conv1D weights are (in, out)), so a model.safetensors loads
// without transposing. In 16 bits, operators sum in fp32 (precision/arithmetic.h). The output projection is tied to the
// token embedding and is no parameter of its own. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/gpt2_config.h"
#include "trainer/model/model_share.h"

namespace gloo_bypass::trainer {

// Parameters of one transformer block.
struct Gpt2Block {
  at::Tensor ln1Weight, ln1Bias;
  at::Tensor attentionWeight, attentionBias;    // (C, 3C), (3C)
  at::Tensor projectionWeight, projectionBias;  // (C, C), (C)
  at::Tensor ln2Weight, ln2Bias;
  at::Tensor expandWeight, expandBias;      // (C, 4C), (4C)
  at::Tensor contractWeight, contractBias;  // (4C, C), (C)

  std::vector<at::Tensor> parameters() const {
    return {ln1Weight, ln1Bias, attentionWeight, attentionBias, projectionWeight, projectionBias,
            ln2Weight, ln2Bias, expandWeight,    expandBias,    contractWeight,   contractBias};
  }
};

// The parts of a forward, in its order. Each reads the parameters of one unit: unit 0 holds the embeddings and the
// final norm, for the embedding and (tied to it) the head; unit 1 + i holds block i.
enum class ForwardPart { kEmbedding, kBlock, kHead };
using PartComputation = std::function<at::Tensor(const at::Tensor& x)>;

// Wraps the parts of a forward, for a method that holds a unit's parameters only while they are read.
class PartRunner {
 public:
  virtual ~PartRunner() = default;
  // Of the parts that follow; BT.
  virtual void beginForward(int64_t /*positions*/) {}
  // Returns compute(x). x is (BT, C), undefined for the embedding; the head's result is the loss, the others' (BT, C).
  virtual at::Tensor run(ForwardPart part, size_t unit, const at::Tensor& x, const PartComputation& compute) = 0;
};

// Wraps attention and MLP, the two halves of a block, where ranks share each block (tensor_parallel.h).
class BlockSplit {
 public:
  virtual ~BlockSplit() = default;
  // x (BT, C), the same at all ranks, before what each computes a part of.
  virtual at::Tensor enter(const at::Tensor& x) = 0;
  // The ranks' parts (BT, C) added up.
  virtual at::Tensor leave(const at::Tensor& part) = 0;
};

// Seeds the dropout of a micro-batch: a function of its place in the run, not of what ran before, so that a resumed run
// needs no generator state to go on exactly. `microBatch` counts from the run's first step.
uint64_t dropoutSeed(uint64_t seed, int rank, int64_t microBatch);

class Gpt2 {
 public:
  // All parameters are zero until initialize() or a loader fills them; of the sizes that `share` has.
  Gpt2(const Gpt2Config& config, at::ScalarType type, const ModelShare& share = {});

  // GPT-2's initialisation: normal(0, 0.02), residual projections scaled by 1/sqrt(2 layers), biases 0, norms 1.
  void initialize(uint64_t seed);

  // The mean cross entropy of predicting targets (B, T) from ids (B, T), both int64; a scalar with a graph.
  // dropout 0 draws no random numbers.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets, double dropout) const;

  // Of all forwards from now on; not owned, null for none.
  void runPartsBy(PartRunner* runner) { partRunner_ = runner; }
  PartRunner* partRunner() const { return partRunner_; }
  void splitBlocksBy(BlockSplit* split) { blockSplit_ = split; }
  // From now on, blocks keep their input only and compute the rest again in backward (activation_checkpointing.h): the
  // same bits.
  void checkpointActivations(bool wanted) { checkpointActivations_ = wanted; }
  // The same for what each block's attention has of each pair of tokens, and nothing else: the part of the activations
  // that takes much memory for little computing (Korthikanti et al., Reducing Activation Recomputation in Large
  // Transformer Models, 2022, section 5).
  void checkpointAttention(bool wanted) { checkpointAttention_ = wanted; }

  // Name and tensor in a fixed order: the order of registration in Hugging Face's module.
  const std::vector<std::pair<std::string, at::Tensor>>& named() const { return named_; }
  std::vector<at::Tensor> parameters() const;
  // Of named()[index] in the whole model.
  const std::vector<int64_t>& wholeSizes(size_t index) const { return wholeSizes_[index]; }
  // Of the whole model.
  int64_t parameterCount() const { return config_.parameterCount(); }
  // The parameters of each unit (see ForwardPart), as indices of named().
  std::vector<std::vector<size_t>> units() const;
  const Gpt2Config& config() const { return config_; }

  // Floating-point operations of one training step on `tokens` tokens: 6 x parameters + 12 x layers x hidden x
  // sequence length a token (forward and backward; the second term is attention).
  double trainingFlops(int64_t tokens, int64_t seqLength) const;

 private:
  template <typename Computation>
  at::Tensor run(ForwardPart part, size_t unit, const at::Tensor& x, const Computation& compute) const {
    return partRunner_ != nullptr ? partRunner_->run(part, unit, x, compute) : compute(x);
  }
  at::Tensor blockForward(const Gpt2Block& block, const at::Tensor& x, const at::Tensor& mask, int64_t batch,
                          double dropout) const;
  at::Tensor entering(const at::Tensor& x) const;
  at::Tensor leaving(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;  // x weight + bias
  at::Tensor attention(const Gpt2Block& block, const at::Tensor& x, const at::Tensor& mask, int64_t batch,
                       double dropout) const;

  Gpt2Config config_;
  PartRunner* partRunner_ = nullptr;
  BlockSplit* blockSplit_ = nullptr;
  bool checkpointActivations_ = false, checkpointAttention_ = false;
  std::vector<std::pair<std::string, at::Tensor>> named_;
  std::vector<std::vector<int64_t>> wholeSizes_;
  at::Tensor tokenEmbedding_;     // (V, C)
  at::Tensor positionEmbedding_;  // (P, C)
  std::vector<Gpt2Block> blocks_;
  at::Tensor finalNormWeight_, finalNormBias_;
};

}  // namespace gloo_bypass::trainer
