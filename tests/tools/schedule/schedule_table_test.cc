#include "tools/schedule/schedule_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass {
namespace {

using namespace collectives;

TEST(ScheduleTable_Ring, TwoRanks_IsDrawnByRound) {
  EXPECT_EQ(scheduleTable(*findAlgorithm(Kind::kAllReduce, Algorithm::kRing), {.size = 2}),
            "all-reduce, ring, 2 ranks, 2 parts: 2 (p - 1) rounds, 2 n (p - 1) / p bytes\n"
            "round  rank 0   rank 1\n"
            "    0  1>1 0+1  0>0 1+0\n"
            "    1  0>1 1<1  1>0 0<0\n");
}

TEST(ScheduleTable_RangesAndSums, AreShort) {
  const std::string table = scheduleTable(*findAlgorithm(Kind::kAllReduce, Algorithm::kHalvingDoubling), {.size = 4});
  EXPECT_THAT(table, ::testing::HasSubstr("2-3>2 0-1+2"));
  EXPECT_THAT(scheduleTable(*findAlgorithm(Kind::kAllReduce, Algorithm::kOneShot), {.size = 3}),
              ::testing::HasSubstr("0>1 0>2 0+1,2"));
}

TEST(ScheduleTable_List, NamesEveryAlgorithm) {
  for (const AlgorithmRow& row : algorithms())
    EXPECT_THAT(algorithmList(), ::testing::HasSubstr(nameOf(row.algorithm)));
}

}  // namespace
}  // namespace gloo_bypass
