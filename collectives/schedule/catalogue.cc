#include "collectives/schedule/catalogue.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdint>

#include <fmt/format.h>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {
namespace {

constexpr const char* kNames[kAlgorithms] = {"one-shot",
                                             "direct",
                                             "ring",
                                             "bidirectional-ring",
                                             "halving-doubling",
                                             "double-tree",
                                             "binomial",
                                             "scatter-all-gather",
                                             "dissemination",
                                             "two-level-ring",
                                             "two-level-one-shot"};

constexpr AlgorithmRow kRows[] = {
    {Kind::kAllReduce, Algorithm::kOneShot, oneShotAllReduce, "1 round, n (p - 1) bytes"},
    {Kind::kAllReduce, Algorithm::kDirect, directAllReduce, "2 rounds, 2 n (p - 1) / p bytes"},
    {Kind::kAllReduce, Algorithm::kRing, ringAllReduce, "2 (p - 1) rounds, 2 n (p - 1) / p bytes"},
    {Kind::kAllReduce, Algorithm::kBidirectionalRing, bidirectionalRingAllReduce,
     "2 (p - 1) rounds, 2 n (p - 1) / p bytes, half each way"},
    {Kind::kAllReduce, Algorithm::kHalvingDoubling, halvingDoublingAllReduce,
     "2 log p rounds, 2 n (p - 1) / p bytes; 2 rounds and 2 n more beyond a power of two"},
    {Kind::kAllReduce, Algorithm::kDoubleTree, doubleTreeAllReduce, "about 2 log p rounds, about 2 n bytes"},
    {Kind::kAllReduce, Algorithm::kTwoLevelRing, twoLevelRing, "a ring between hosts, n bytes to and from its leader"},
    {Kind::kAllReduce, Algorithm::kTwoLevelOneShot, twoLevelOneShot, "3 rounds: to the leader, between leaders, back"},
    {Kind::kReduce, Algorithm::kBinomial, binomialReduce, "log p rounds, n bytes"},
    {Kind::kReduce, Algorithm::kDirect, directReduce, "2 rounds, n bytes"},
    {Kind::kReduceScatter, Algorithm::kDirect, directReduceScatter, "1 round, n (p - 1) / p bytes"},
    {Kind::kReduceScatter, Algorithm::kRing, ringReduceScatter, "p - 1 rounds, n (p - 1) / p bytes"},
    {Kind::kAllGather, Algorithm::kDirect, directAllGather, "1 round, n (p - 1) / p bytes"},
    {Kind::kAllGather, Algorithm::kRing, ringAllGather, "p - 1 rounds, n (p - 1) / p bytes"},
    {Kind::kGather, Algorithm::kDirect, directGather, "1 round"},
    {Kind::kBroadcast, Algorithm::kBinomial, binomialBroadcast, "log p rounds, up to n log p bytes"},
    {Kind::kBroadcast, Algorithm::kScatterAllGather, scatterAllGatherBroadcast,
     "log p + p - 1 rounds, about 2 n bytes"},
    {Kind::kScatter, Algorithm::kDirect, directScatter, "1 round"},
    {Kind::kAllToAll, Algorithm::kDirect, pairwiseAllToAll, "p - 1 exchanges, none waits for another"},
    {Kind::kBarrier, Algorithm::kDissemination, disseminationBarrier, "log p rounds"},
};

// The first row of the kind that fits is chosen.
struct Rule {
  Kind kind;
  std::size_t upToBytes;
  int upToRanks;
  Algorithm algorithm;
  const char* why;
};
constexpr std::size_t kAny = SIZE_MAX;
constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr Rule kRules[] = {
    {Kind::kAllReduce, 16 * kKiB, 4, Algorithm::kOneShot, "short: one network round costs more than the bytes"},
    {Kind::kAllReduce, 4 * kKiB, 16, Algorithm::kOneShot, "short: one network round costs more than the bytes"},
    {Kind::kAllReduce, kMiB, 16, Algorithm::kDirect, "two rounds, and each byte is added once"},
    {Kind::kAllReduce, kMiB, INT_MAX, Algorithm::kHalvingDoubling, "many ranks: few rounds, few messages"},
    {Kind::kAllReduce, kAny, INT_MAX, Algorithm::kRing, "long: least bytes, and one peer at a time sends to a rank"},
    {Kind::kReduce, 64 * kKiB, INT_MAX, Algorithm::kBinomial, "short: few rounds, few messages"},
    {Kind::kReduce, kAny, INT_MAX, Algorithm::kDirect, "long: all ranks add a part"},
    {Kind::kReduceScatter, kMiB, 16, Algorithm::kDirect, "one round"},
    {Kind::kReduceScatter, kAny, INT_MAX, Algorithm::kRing, "long: one peer at a time sends to a rank"},
    {Kind::kAllGather, kMiB, 16, Algorithm::kDirect, "one round"},
    {Kind::kAllGather, kAny, INT_MAX, Algorithm::kRing, "long: one peer at a time sends to a rank"},
    {Kind::kGather, kAny, INT_MAX, Algorithm::kDirect, "all data goes to one rank, whatever the way"},
    {Kind::kBroadcast, 256 * kKiB, INT_MAX, Algorithm::kBinomial, "short: few rounds"},
    {Kind::kBroadcast, kAny, INT_MAX, Algorithm::kScatterAllGather, "long: no rank sends more than twice the data"},
    {Kind::kScatter, kAny, INT_MAX, Algorithm::kDirect, "all data comes from one rank, whatever the way"},
    {Kind::kAllToAll, kAny, INT_MAX, Algorithm::kDirect, "each block goes straight to its rank"},
    {Kind::kBarrier, kAny, INT_MAX, Algorithm::kDissemination, "few rounds"},
};

const Rule& ruleFor(Kind kind, std::size_t bytes, int size) {
  return *std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& rule) {
    return rule.kind == kind && bytes <= rule.upToBytes && size <= rule.upToRanks;
  });
}

// A slice sets about two parts a rank aside (never more than that with any algorithm here), several slices at a time.
constexpr std::size_t kSliceBytes = 2 * kMiB, kMostPartBytes = 256 * kKiB, kLeastPartBytes = 4 * kKiB;

}  // namespace

const char* nameOf(Algorithm algorithm) { return kNames[static_cast<std::size_t>(algorithm)]; }

std::optional<Algorithm> algorithmNamed(std::string_view name) {
  for (int i = 0; i < kAlgorithms; ++i) {
    if (name == kNames[i]) return static_cast<Algorithm>(i);
  }
  return std::nullopt;
}

std::span<const AlgorithmRow> algorithms() { return kRows; }

const AlgorithmRow* findAlgorithm(Kind kind, Algorithm algorithm) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const AlgorithmRow& one) {
    return one.kind == kind && one.algorithm == algorithm;
  });
  return row == std::end(kRows) ? nullptr : row;
}

Choice choiceOf(Algorithm algorithm, int size) {
  const std::size_t each = kSliceBytes / static_cast<std::size_t>(std::max(1, size));
  return {algorithm, std::bit_floor(std::clamp(each, kLeastPartBytes, kMostPartBytes))};
}

Choice choose(Kind kind, std::size_t bytes, int size) { return choiceOf(ruleFor(kind, bytes, size).algorithm, size); }

std::string explain(Kind kind, std::size_t bytes, int size) {
  const Rule& rule = ruleFor(kind, bytes, size);
  std::string limits;
  if (rule.upToBytes != kAny) limits += fmt::format(" up to {} KiB", rule.upToBytes / kKiB);
  if (rule.upToRanks != INT_MAX) limits += fmt::format(" up to {} ranks", rule.upToRanks);
  return fmt::format("{} of {} bytes among {} ranks: {} ({}). {}; the rule holds{}", nameOf(kind), bytes, size,
                     nameOf(rule.algorithm), findAlgorithm(kind, rule.algorithm)->cost, rule.why,
                     limits.empty() ? " for all that no rule before it takes" : limits);
}

}  // namespace gloo_bypass::collectives
