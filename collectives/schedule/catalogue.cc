#include "collectives/schedule/catalogue.h"

#include <algorithm>
#include <iterator>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {
namespace {

constexpr const char* kNames[] = {"one-shot",
                                  "direct",
                                  "ring",
                                  "bidirectional-ring",
                                  "halving-doubling",
                                  "double-tree",
                                  "binomial",
                                  "scatter-all-gather",
                                  "dissemination",
                                  "two-level-ring",
                                  "two-level-one-shot",
                                  "recursive-doubling",
                                  "two-level-rails"};
static_assert(std::size(kNames) == kAlgorithms, "each algorithm has a name");

constexpr AlgorithmRow kRows[] = {
    {Kind::kAllReduce, Algorithm::kOneShot, oneShotAllReduce, "1 round, n (p - 1) bytes"},
    {Kind::kAllReduce, Algorithm::kDirect, directAllReduce, "2 rounds, 2 n (p - 1) / p bytes"},
    {Kind::kAllReduce, Algorithm::kRing, ringAllReduce, "2 (p - 1) rounds, 2 n (p - 1) / p bytes", false},
    {Kind::kAllReduce, Algorithm::kBidirectionalRing, bidirectionalRingAllReduce,
     "2 (p - 1) rounds, 2 n (p - 1) / p bytes, half each way", false},
    {Kind::kAllReduce, Algorithm::kHalvingDoubling, halvingDoublingAllReduce,
     "2 log p rounds, 2 n (p - 1) / p bytes; 2 rounds and 2 n more beyond a power of two", false},
    {Kind::kAllReduce, Algorithm::kDoubleTree, doubleTreeAllReduce, "about 2 log p rounds, about 2 n bytes", false},
    {Kind::kAllReduce, Algorithm::kRecursiveDoubling, recursiveDoublingAllReduce,
     "log p rounds, n log p bytes; 2 rounds and 2 n more beyond a power of two", false},
    {Kind::kAllReduce, Algorithm::kTwoLevelRing, twoLevelRing, "a ring between hosts, n bytes to and from its leader",
     false},
    {Kind::kAllReduce, Algorithm::kTwoLevelOneShot, twoLevelOneShot, "3 rounds: to the leader, between leaders, back",
     false},
    {Kind::kAllReduce, Algorithm::kTwoLevelRails, railsAllReduce,
     "4 rounds, 2 of them between hosts; with h hosts 2 n (h - 1) / h bytes from each to others", false},
    {Kind::kReduce, Algorithm::kBinomial, binomialReduce, "log p rounds, n bytes", false},
    {Kind::kReduce, Algorithm::kDirect, directReduce, "2 rounds, n bytes"},
    {Kind::kReduce, Algorithm::kTwoLevelRails, railsReduce,
     "3 rounds, 1 of them between hosts; beyond 3 hosts 4, 2 of them", false},
    {Kind::kReduceScatter, Algorithm::kDirect, directReduceScatter, "1 round, n (p - 1) / p bytes"},
    {Kind::kReduceScatter, Algorithm::kRing, ringReduceScatter, "p - 1 rounds, n (p - 1) / p bytes", false},
    {Kind::kReduceScatter, Algorithm::kTwoLevelRails, railsReduceScatter,
     "2 rounds, 1 of them between hosts; with h hosts n (h - 1) / h bytes from each", false},
    {Kind::kAllGather, Algorithm::kDirect, directAllGather, "1 round, n (p - 1) / p bytes"},
    {Kind::kAllGather, Algorithm::kRing, ringAllGather, "p - 1 rounds, n (p - 1) / p bytes"},
    {Kind::kAllGather, Algorithm::kTwoLevelRails, railsAllGather,
     "2 rounds, 1 of them between hosts; a rank's block once to each host"},
    {Kind::kGather, Algorithm::kDirect, directGather, "1 round"},
    {Kind::kBroadcast, Algorithm::kBinomial, binomialBroadcast, "log p rounds, up to n log p bytes"},
    {Kind::kBroadcast, Algorithm::kScatterAllGather, scatterAllGatherBroadcast,
     "log p + p - 1 rounds, about 2 n bytes"},
    {Kind::kBroadcast, Algorithm::kTwoLevelRails, railsBroadcast,
     "3 rounds, 1 of them between hosts; beyond 3 hosts 4, 2 of them"},
    {Kind::kScatter, Algorithm::kDirect, directScatter, "1 round"},
    {Kind::kAllToAll, Algorithm::kDirect, pairwiseAllToAll, "p - 1 exchanges, none waits for another"},
    {Kind::kBarrier, Algorithm::kDissemination, disseminationBarrier, "log p rounds"},
    {Kind::kBarrier, Algorithm::kTwoLevelRails, railsBarrier, "2 rounds, 1 of them between hosts"},
};

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

}  // namespace gloo_bypass::collectives
