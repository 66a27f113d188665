#include "collectives/memory/host_plan.h"

#include <gtest/gtest.h>

namespace gloo_bypass::collectives {
namespace {

// Ranks of so many cores each, one after the other: the first one's begin at 0, the next one's at `apart`.
std::vector<RankCores> ranksOf(int count, int cores, int apart, int limit = 1 << 16) {
  std::vector<RankCores> ranks;
  for (int rank = 0; rank < count; ++rank) {
    RankCores one{.cores = std::min(cores, limit), .coreSet = std::vector<std::uint64_t>(4), .threads = 0};
    for (int core = rank * apart; core < rank * apart + cores; ++core)
      one.coreSet[static_cast<std::size_t>(core / 64)] |= std::uint64_t{1} << (core % 64);
    ranks.push_back(one);
  }
  return ranks;
}

void expectPlan(const std::vector<RankCores>& ranks, int lanes, bool ownCores) {
  const HostPlan plan = planFor(ranks);
  EXPECT_EQ(plan.lanes, lanes);
  EXPECT_EQ(plan.ownCores, ownCores);
}

TEST(HostPlan, RanksMayUseTheSameCores_ShareThem) {
  expectPlan(ranksOf(4, 16, 0), 4, true);
  expectPlan(ranksOf(2, 2, 0), 1, true);
  expectPlan(ranksOf(4, 2, 0), 1, false);
  expectPlan(ranksOf(1, 16, 0), 8, true);
}

TEST(HostPlan, RanksAreBoundToCoresOfTheirOwn_UseThem) {
  expectPlan(ranksOf(4, 4, 4), 4, true);
  expectPlan(ranksOf(16, 4, 4), 4, true);
  expectPlan(ranksOf(2, 16, 16), 8, true);
  expectPlan(ranksOf(16, 1, 1), 1, true);
  expectPlan(ranksOf(4, 4, 2), 2, true);  // half of them are a neighbour's, too: 10 cores in all
}

TEST(HostPlan, OneIsBoundToFewer_AllUseAsManyThreads) {
  std::vector<RankCores> ranks = ranksOf(2, 8, 8);
  ranks[1].coreSet = {0x300};
  ranks[1].cores = 2;
  expectPlan(ranks, 2, true);
}

TEST(HostPlan, CgroupsLimit_CountsAsThatOfAllTogether) {
  expectPlan(ranksOf(2, 64, 0, 4), 2, true);
  expectPlan(ranksOf(8, 64, 0, 4), 1, false);
}

TEST(HostPlan, MaskIsNotKnown_TheLeastNumberIsThatOfAll) {
  std::vector<RankCores> ranks = ranksOf(4, 16, 0);
  ranks[2].coreSet.clear();
  expectPlan(ranks, 4, true);
}

TEST(HostPlan, APartOfTheHostsRanks_LeavesTheOthersTheirCores) {
  const auto of = [](std::vector<RankCores> ranks, int hostRanks) {
    for (RankCores& rank : ranks) rank.hostRanks = hostRanks;
    return ranks;
  };
  expectPlan(of(ranksOf(2, 16, 0), 8), 2, true);
  expectPlan(of(ranksOf(2, 16, 0), 32), 1, false);
  expectPlan(of(ranksOf(2, 64, 0, 4), 4), 1, true);
  expectPlan(of(ranksOf(2, 4, 4), 4), 4, true);  // bound to cores of their own
}

TEST(HostPlan, Settings_OnlyLowerTheThreads) {
  std::vector<RankCores> ranks = ranksOf(2, 16, 0);
  ranks[0].threads = 3;
  expectPlan(ranks, 3, true);
  ranks[0].threads = 100;
  expectPlan(ranks, 8, true);
}

}  // namespace
}  // namespace gloo_bypass::collectives
