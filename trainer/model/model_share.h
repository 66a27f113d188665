// Which part of each of a model's parameters a rank holds, where ranks share one model. Pure; no libtorch.
//
// tensor (Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
// section 3): of every block the first matrix of attention and of the MLP is cut by columns (attention's by heads, of
// query, key and value alike), the second by rows; norms, embeddings and the second matrices' biases are at every rank.
// Pipelines (Huang et al. 2019, "GPipe", section 2.1): rank r of N has the r-th of N runs of blocks; the first rank the
// embeddings besides, the last one the final norm and, for the tied head, the token embedding once more.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config/gpt2_config.h"
#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

// Of a whole parameter, seen as (outer, extent, inner), a rank holds [begin, begin + length) of the middle dimension.
struct HeldPiece {
  std::vector<int64_t> sizes;  // as the rank's tensor has them; {0} where it holds nothing
  int64_t outer = 1, extent = 0, inner = 1;
  int64_t begin = 0, length = 0;
  bool isCopy = false;  // a rank before this one holds it too, and speaks for it in files and norms

  bool isWhole() const { return length == extent; }
  int64_t elements() const { return outer * length * inner; }
};

class ModelShare {
 public:
  // Everything.
  ModelShare() = default;
  // Rank `rank`'s of `ranks`. Throws UsageError for a model that cannot be shared among so many.
  ModelShare(ModelParallelism method, int rank, int ranks, const Gpt2Config& config);
  ModelShare(ModelParallelism method, const MeshPlace& place, const Gpt2Config& config)
      : ModelShare(method, place.part, place.parts, config) {}

  HeldPiece of(const ParameterShape& parameter) const;
  // Of all the model's parameters.
  int64_t elements(const Gpt2Config& config) const;
  // Pipelines: the blocks [firstBlock, endBlock) are this rank's.
  bool hasBlock(int64_t block) const { return block >= firstBlock_ && block < endBlock_; }

 private:
  HeldPiece tensorPiece(const ParameterShape& parameter, HeldPiece piece) const;
  HeldPiece stagePiece(const ParameterShape& parameter, HeldPiece piece) const;

  ModelParallelism method_ = ModelParallelism::kNone;
  int64_t rank_ = 0, ranks_ = 1;
  int64_t firstBlock_ = 0, endBlock_ = 0;
};

}  // namespace gloo_bypass::trainer
