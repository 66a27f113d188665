#include "trainer/data/sampler.h"

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "tools/common/error.h"
#include "trainer/data/shard_stream.h"

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

// Of 7 samples in batches of 2 a rank, seed 3: torch.utils.data.DistributedSampler(range(7), 2, rank, seed=3) in a
// DataLoader of batch size 2, PyTorch 1.13. Order: 5, 3, 4, 6, 0, 2, 1.
TEST(Sampler, PaddedTail_EqualsTorchDistributedSampler) {
  const DistributedSampler::GlobalBatch batch{4};
  DistributedSampler first(7, 2, 0, batch, 3, Tail::kPad), second(7, 2, 1, batch, 3, Tail::kPad);
  EXPECT_EQ(first.batchesPerEpoch(), 2);
  EXPECT_EQ(first.batch(0, 0), (Indices{5, 4}));
  EXPECT_EQ(first.batch(0, 1), (Indices{0, 1}));
  EXPECT_EQ(second.batch(0, 0), (Indices{3, 6}));
  EXPECT_EQ(second.batch(0, 1), (Indices{2, 5}));
  // A tail of 1 for 3 ranks, in a text shorter than a batch: the samples come again and again.
  EXPECT_EQ(DistributedSampler(1, 3, 2, {6}, 0, Tail::kPad).batch(0, 0), (Indices{0}));
}

TEST(Sampler, UnevenTail_HasEverySampleOnce) {
  for (const int64_t samples : {1, 5, 12, 13, 14, 22, 23, 24}) {
    std::multiset<int64_t> seen;
    for (int rank = 0; rank < 3; ++rank) {
      DistributedSampler sampler(samples, 3, rank, DistributedSampler::GlobalBatch{12}, 7, Tail::kWeighted);
      for (int64_t batch = 0; batch < sampler.batchesPerEpoch(); ++batch) {
        const auto indices = sampler.batch(1, batch);
        EXPECT_EQ(static_cast<int64_t>(indices.size()), sampler.share(batch));
        EXPECT_LE(std::abs(3 * sampler.share(batch) - sampler.samplesIn(batch)), 2) << samples << ": even but for one";
        seen.insert(indices.begin(), indices.end());
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), samples);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size()) << samples;
  }
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

// Rank 0 reads the second, the fourth and the third of five shards, rank 1 the first and the last. Any two have at
// least 4 samples.
TEST(ShardStream, RankReadsItsShardsFromFrontToBack) {
  const std::vector<int64_t> shards{3, 3, 0, 3, 3, 1};          // the empty one does not count
  ASSERT_EQ(torchPermutation(5, 3), (Indices{1, 0, 3, 4, 2}));  // PyTorch's
  ASSERT_EQ(streamedSamples(shards, 2), 8);
  // Their samples are 0-2, 3-5, 6-8, 9-11 and 12.
  EXPECT_EQ(streamOrder(shards, 2, 3), (Indices{3, 0, 4, 1, 5, 2, 9, 12}));
  DistributedSampler second(8, 2, 1, DistributedSampler::GlobalBatch{4}, 1, Tail::kDrop, shards);
  EXPECT_EQ(second.batch(2, 0), (Indices{0, 1}));
  EXPECT_EQ(second.batch(2, 1), (Indices{2, 12}));
}

TEST(ShardStream, AnyEpoch_HasAsManySamplesAndNoneTwice) {
  const std::vector<int64_t> shards{7, 7, 7, 7, 7, 7, 2};
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const auto count = streamedSamples(shards, ranks);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto order = streamOrder(shards, ranks, seed);
      const std::set<int64_t> different(order.begin(), order.end());
      EXPECT_EQ(static_cast<int64_t>(different.size()), count) << ranks << " ranks, seed " << seed;
      EXPECT_TRUE(*different.begin() >= 0 && *different.rbegin() < 44);
      for (size_t i = 0; i + static_cast<size_t>(ranks) < order.size(); ++i) {  // the next one, or the first of a shard
        const int64_t next = order[i + static_cast<size_t>(ranks)];
        EXPECT_TRUE(next == order[i] + 1 || next % 7 == 0) << order[i] << ", then " << next;
      }
    }
  }
  EXPECT_EQ(streamedSamples(shards, 1), 44);
  EXPECT_THROW(streamedSamples(shards, 8), UsageError);
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

}  // namespace
}  // namespace gloo_bypass::trainer
