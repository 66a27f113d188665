// GPT-2 as Hugging Face's GPT2LMHeadModel computes it, on plain ATen calls.
//
// Parameters carry Hugging Face's names and shapes (Conv1D weights are (in, out)), so a model.safetensors loads
// without transposing. In 16 bits, operators sum in fp32 (precision/arithmetic.h). The output projection is tied to the token embedding and is no parameter of its own.
// One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/options.h"

namespace gloo_bypass::trainer {

struct Gpt2Config {
  int64_t layers;
  int64_t hidden;
  int64_t heads;
  int64_t vocabulary;
  int64_t positions;

  static Gpt2Config of(ModelKind kind);
};

// Parameters of one transformer block.
struct Gpt2Block {
  at::Tensor ln1Weight, ln1Bias;
  at::Tensor attentionWeight, attentionBias;   // (C, 3C), (3C)
  at::Tensor projectionWeight, projectionBias; // (C, C), (C)
  at::Tensor ln2Weight, ln2Bias;
  at::Tensor expandWeight, expandBias;     // (C, 4C), (4C)
  at::Tensor contractWeight, contractBias; // (4C, C), (C)
};

class Gpt2 {
 public:
  // All parameters are zero until initialize() or a loader fills them.
  Gpt2(const Gpt2Config& config, at::ScalarType type);

  // GPT-2's initialisation: normal(0, 0.02), residual projections scaled by 1/sqrt(2 layers), biases 0, norms 1.
  void initialize(uint64_t seed);

  // The mean cross entropy of predicting targets (B, T) from ids (B, T), both int64; a scalar with a graph.
  // dropout 0 draws no random numbers.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& targets, double dropout) const;

  // Name and tensor in a fixed order: the order of registration in Hugging Face's module.
  const std::vector<std::pair<std::string, at::Tensor>>& named() const { return named_; }
  std::vector<at::Tensor> parameters() const;
  int64_t parameterCount() const;
  const Gpt2Config& config() const { return config_; }

  // Floating-point operations of one training step on `tokens` tokens: 6 x parameters + 12 x layers x hidden x
  // sequence length a token (forward and backward; the second term is attention).
  double trainingFlops(int64_t tokens, int64_t seqLength) const;

 private:
  at::Tensor add(std::string name, at::IntArrayRef shape, at::ScalarType type);
  at::Tensor attention(const Gpt2Block& block, const at::Tensor& x, const at::Tensor& mask, int64_t batch,
      double dropout) const;

  Gpt2Config config_;
  std::vector<std::pair<std::string, at::Tensor>> named_;
  at::Tensor tokenEmbedding_;    // (V, C)
  at::Tensor positionEmbedding_; // (P, C)
  std::vector<Gpt2Block> blocks_;
  at::Tensor finalNormWeight_, finalNormBias_;
};

} // namespace gloo_bypass::trainer
