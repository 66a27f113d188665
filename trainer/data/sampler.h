// Which samples a rank trains on, in which order: torch.utils.data.DistributedSampler's order.
//
// Each epoch's permutation is exactly torch.randperm(samples) under manual_seed(seed + epoch), so a Python script
// with the same seed visits the same samples. Rank r takes every worldSize-th entry from r on; every rank has the
// same number of batches, however the incomplete last one is handled. At batch s the ranks together take the N x b
// samples that a single rank with batch N x b takes.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

class DistributedSampler {
 public:
  // worldSize and batchSize at least 1, rank below worldSize.
  DistributedSampler(int64_t sampleCount, int worldSize, int rank, int64_t batchSize, uint64_t seed)
      : DistributedSampler(sampleCount, worldSize, rank, GlobalBatch{batchSize * worldSize}, seed) {}
  // The ranks share batches of so many samples, at least worldSize; where they do not divide evenly, the first ranks
  // have one more. Which samples batch s holds does not depend on how many ranks share it.
  struct GlobalBatch {
    int64_t samples;
  };
  // With samplesOfShards (data/shard_stream.h) ranks read shards from front to back; sampleCount is then
  // streamedSamples() of them.
  DistributedSampler(int64_t sampleCount, int worldSize, int rank, GlobalBatch batch, uint64_t seed,
                     Tail tail = Tail::kDrop, std::vector<int64_t> samplesOfShards = {});

  // Samples / (batch x ranks), rounded down, or up if the last ones are kept; the same for every rank and epoch.
  int64_t batchesPerEpoch() const;
  // How many samples all ranks, and this one, have of a batch.
  int64_t samplesIn(int64_t batch) const;
  int64_t share(int64_t batch) const { return (samplesIn(batch) - rank_ + worldSize_ - 1) / worldSize_; }

  // This rank's sample indices for one batch. `batch` below batchesPerEpoch().
  std::vector<int64_t> batch(int64_t epoch, int64_t batch);
  // Those of all ranks: rank r has the r-th, the (r + N)-th and so on.
  std::vector<int64_t> wholeBatch(int64_t epoch, int64_t batch);

 private:
  int64_t sampleCount_;
  int64_t worldSize_;
  int64_t rank_;
  int64_t globalBatch_;
  uint64_t seed_;
  Tail tail_;
  std::vector<int64_t> samplesOfShards_;
  int64_t permutedEpoch_ = -1;
  std::vector<int64_t> permutation_;
};

// torch.randperm(count) of a CPU generator seeded with `seed`.
std::vector<int64_t> torchPermutation(int64_t count, uint64_t seed);

}  // namespace gloo_bypass::trainer
