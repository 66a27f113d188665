// Which samples ranks train on that each read shards of their own from front to back, instead of samples from anywhere.
// Pure.
//
// Each epoch's permutation of the shards is torch.randperm(shards) under manual_seed(seed + epoch); rank r reads every
// worldSize-th of them from r on, as Hugging Face's split_dataset_by_node does. Shards without a whole sample are none.
#pragma once

#include <cstdint>
#include <vector>

namespace gloo_bypass::trainer {

// How many samples the ranks have together in an epoch, every rank as many: what the fewest and smallest shards hold
// that a rank may draw, so that it is the same for all epochs. Throws UsageError for fewer shards than ranks.
int64_t streamedSamples(const std::vector<int64_t>& samplesOfShards, int ranks);

// Their order: rank r's samples are the r-th, the (r + ranks)-th and so on. Samples are numbered shard by shard.
std::vector<int64_t> streamOrder(const std::vector<int64_t>& samplesOfShards, int ranks, uint64_t seed);

}  // namespace gloo_bypass::trainer
