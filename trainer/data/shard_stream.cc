#include "trainer/data/shard_stream.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/data/sampler.h"

namespace gloo_bypass::trainer {
namespace {

struct Shard {
  int64_t begin, samples;
};

std::vector<Shard> shardsOf(const std::vector<int64_t>& samplesOfShards) {
  std::vector<Shard> shards;
  int64_t begin = 0;
  for (const int64_t samples : samplesOfShards) {
    if (samples > 0) {
      shards.push_back({begin, samples});
    }
    begin += samples;
  }
  return shards;
}

}  // namespace

int64_t streamedSamples(const std::vector<int64_t>& samplesOfShards, int ranks) {
  auto shards = shardsOf(samplesOfShards);
  if (static_cast<int64_t>(shards.size()) < ranks) {
    throw UsageError(
        fmt::format("--stream-shards: {} shards with a whole sample, fewer than {} ranks: tokenise with a smaller "
                    "--shard-tokens",
                    shards.size(), ranks));
  }
  const auto fewest = static_cast<int64_t>(shards.size()) / ranks;
  std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) { return a.samples < b.samples; });
  return ranks * std::accumulate(shards.begin(), shards.begin() + fewest, int64_t{0},
                                 [](int64_t sum, const Shard& shard) { return sum + shard.samples; });
}

std::vector<int64_t> streamOrder(const std::vector<int64_t>& samplesOfShards, int ranks, uint64_t seed) {
  const auto shards = shardsOf(samplesOfShards);
  const auto drawn = torchPermutation(static_cast<int64_t>(shards.size()), seed);
  std::vector<int64_t> order(static_cast<size_t>(streamedSamples(samplesOfShards, ranks)));
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    size_t next = rank;  // in `order`
    for (size_t i = rank; i < drawn.size(); i += static_cast<size_t>(ranks)) {
      const auto& shard = shards[static_cast<size_t>(drawn[i])];
      for (int64_t sample = 0; sample < shard.samples && next < order.size();
           ++sample, next += static_cast<size_t>(ranks)) {
        order[next] = shard.begin + sample;
      }
    }
  }
  return order;
}

}  // namespace gloo_bypass::trainer
