#include "trainer/sampler.h"

#include <set>

#include <gtest/gtest.h>

namespace gloo_bypass::trainer {
namespace {

using Indices = std::vector<int64_t>;

// Expected values: torch.randperm and torch.utils.data.DistributedSampler of PyTorch 1.13.
TEST(Sampler, Permutation_EqualsTorchRandperm) {
  EXPECT_EQ(torchPermutation(10, 42), (Indices{2, 6, 1, 8, 4, 5, 0, 9, 3, 7}));
  EXPECT_EQ(torchPermutation(10, 43), (Indices{8, 4, 9, 0, 5, 1, 6, 7, 2, 3}));
  EXPECT_EQ(torchPermutation(10, (uint64_t{1} << 32) + 7), (Indices{5, 0, 3, 4, 1, 7, 9, 6, 8, 2}));
}

TEST(Sampler, Order_EqualsTorchDistributedSampler) {
  DistributedSampler first(20, 2, 0, 10, 42), second(20, 2, 1, 10, 42);
  EXPECT_EQ(first.batch(3, 0), (Indices{7, 9, 4, 3, 19, 17, 8, 1, 13, 15}));
  EXPECT_EQ(second.batch(3, 0), (Indices{6, 0, 2, 16, 14, 5, 10, 18, 11, 12}));
}

TEST(Sampler, IncompleteBatch_IsDropped) {
  // The published runs: 25, 12 and 12 steps.
  EXPECT_EQ(DistributedSampler(400, 2, 0, 8, 0).batchesPerEpoch(), 25);
  EXPECT_EQ(DistributedSampler(400, 2, 0, 16, 0).batchesPerEpoch(), 12);
  EXPECT_EQ(DistributedSampler(400, 4, 0, 8, 0).batchesPerEpoch(), 12);
}

TEST(Sampler, RanksOfAnEpoch_ShareNoSample) {
  std::set<int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    DistributedSampler sampler(100, 3, rank, 4, 7);
    for (int64_t batch = 0; batch < sampler.batchesPerEpoch(); ++batch) {
      for (const int64_t index : sampler.batch(1, batch)) {
        EXPECT_TRUE(index >= 0 && index < 100);
        EXPECT_TRUE(seen.insert(index).second) << index;
      }
    }
  }
  EXPECT_EQ(seen.size(), 96u);
}

TEST(Sampler, RanksTogether_TakeWhatOneLargerRankTakes) {
  DistributedSampler whole(100, 1, 0, 8, 7);
  const auto batch = whole.batch(2, 3);
  const std::set<int64_t> expected(batch.begin(), batch.end());
  std::set<int64_t> together;
  for (int rank = 0; rank < 2; ++rank) {
    const auto part = DistributedSampler(100, 2, rank, 4, 7).batch(2, 3);
    together.insert(part.begin(), part.end());
  }
  EXPECT_EQ(together, expected);
}

} // namespace
} // namespace gloo_bypass::trainer
