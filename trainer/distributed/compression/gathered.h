// For methods that cannot add codes: every rank sends its codes to every other and decodes all of them, in the order of
// the ranks.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/compression/error_feedback.h"

namespace gloo_bypass::trainer {

class GatheredCodes final : public Compressor {
 public:
  GatheredCodes(std::unique_ptr<Codec> codec, ErrorFeedback feedback, uint64_t seed)
      : codec_(std::move(codec)), feedback_(std::move(feedback)), seed_(seed) {}

  void reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) override;
  RankState state() const override { return feedback_.state(); }
  void scaleOwed(double factor) override { feedback_.scale(factor); }

 private:
  const std::unique_ptr<Codec> codec_;
  ErrorFeedback feedback_;
  const uint64_t seed_;
};

}  // namespace gloo_bypass::trainer
