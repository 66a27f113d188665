#include "trainer/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "trainer/data/shard_stream.h"

namespace gloo_bypass::trainer {

std::vector<int64_t> torchPermutation(int64_t count, uint64_t seed) {
  // PyTorch seeds the same MT19937 with the seed's low 32 bits and draws one word an element.
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = 0; i + 1 < count; ++i) {
    const int64_t z = static_cast<int64_t>(generator()) % (count - i);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(i + z)]);
  }
  return order;
}

DistributedSampler::DistributedSampler(int64_t sampleCount, int worldSize, int rank, GlobalBatch batch, uint64_t seed,
                                       Tail tail, std::vector<int64_t> samplesOfShards)
    : sampleCount_(sampleCount),
      worldSize_(worldSize),
      rank_(rank),
      globalBatch_(batch.samples),
      seed_(seed),
      tail_(tail),
      samplesOfShards_(std::move(samplesOfShards)) {}

int64_t DistributedSampler::batchesPerEpoch() const {
  return (tail_ == Tail::kDrop ? sampleCount_ : sampleCount_ + globalBatch_ - 1) / globalBatch_;
}

int64_t DistributedSampler::samplesIn(int64_t batch) const {
  const int64_t left = sampleCount_ - batch * globalBatch_;
  if (left >= globalBatch_) {
    return globalBatch_;
  }
  return tail_ == Tail::kPad ? std::min((left + worldSize_ - 1) / worldSize_ * worldSize_, globalBatch_) : left;
}

std::vector<int64_t> DistributedSampler::wholeBatch(int64_t epoch, int64_t batch) {
  if (epoch != permutedEpoch_) {
    const uint64_t seed = seed_ + static_cast<uint64_t>(epoch);
    permutation_ = samplesOfShards_.empty() ? torchPermutation(sampleCount_, seed)
                                            : streamOrder(samplesOfShards_, static_cast<int>(worldSize_), seed);
    permutedEpoch_ = epoch;
  }
  std::vector<int64_t> indices(static_cast<size_t>(samplesIn(batch)));
  for (int64_t position = batch * globalBatch_; int64_t& index : indices) {
    index = permutation_[static_cast<size_t>(position++ % sampleCount_)];
  }
  return indices;
}

std::vector<int64_t> DistributedSampler::batch(int64_t epoch, int64_t batch) {
  const auto whole = wholeBatch(epoch, batch);
  std::vector<int64_t> indices;
  indices.reserve(static_cast<size_t>(share(batch)));
  for (auto i = static_cast<size_t>(rank_); i < whole.size(); i += static_cast<size_t>(worldSize_)) {
    indices.push_back(whole[i]);
  }
  return indices;
}

}  // namespace gloo_bypass::trainer
