// Methods that can add codes, so that the ring's all-reduce carries them: casts and random-k.
#pragma once

#include <utility>

#include "trainer/distributed/compression/error_feedback.h"
#include "trainer/distributed/compression/random_draw.h"

namespace gloo_bypass::trainer {

// fp16 or bf16, divided by the world size before they are added, as PyTorch's fp16_compress_hook and bf16_compress_hook
// do.
class Cast final : public Compressor {
 public:
  explicit Cast(at::ScalarType type) : type_(type) {}
  void reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) override;

 private:
  const at::ScalarType type_;
};

// Elements drawn at random, the same at all ranks, so that no indices are sent: one of each of k runs of neighbours,
// about 1 / ratio long. With error feedback they are sent as they are (Stich et al. 2018, definition 2.1, rand-k);
// without it times their run's length, so that the mean over draws is the gradient.
class RandomK final : public Compressor {
 public:
  RandomK(double ratio, ErrorFeedback feedback, uint64_t seed)
      : ratio_(ratio), feedback_(std::move(feedback)), seed_(seed) {}
  void reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) override;
  RankState state() const override { return feedback_.state(); }
  void scaleOwed(double factor) override { feedback_.scale(factor); }

 private:
  const double ratio_;
  ErrorFeedback feedback_;
  const uint64_t seed_;
};

}  // namespace gloo_bypass::trainer
