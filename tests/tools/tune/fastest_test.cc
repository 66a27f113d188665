#include "tools/tune/fastest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass {
namespace {

using namespace collectives;
using ::testing::HasSubstr;

Measured took(double microseconds, Algorithm algorithm, std::size_t bytes, int ranks = 2) {
  return {Kind::kAllReduce, ranks, bytes, algorithm, microseconds};
}

Algorithm chosen(const std::vector<Rule>& rules, std::size_t bytes, int ranks, bool sharedHosts = false) {
  ChoiceTable table;
  table.prefer(rules);
  return table.choose({.kind = Kind::kAllReduce, .bytes = bytes, .ranks = ranks, .sharedHosts = sharedHosts}).algorithm;
}

TEST(Fastest_Rules, TwoSizes_EachHasItsFastest) {
  const auto rules = fastestRules({took(1, Algorithm::kOneShot, 100), took(2, Algorithm::kRing, 100),
                                   took(900, Algorithm::kOneShot, 10'000), took(500, Algorithm::kRing, 10'000)},
                                  0.05);
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].upToBytes, 1000u);  // between the two
  EXPECT_EQ(rules[1].upToBytes, SIZE_MAX);
  EXPECT_EQ(chosen(rules, 1000, 2), Algorithm::kOneShot);
  EXPECT_EQ(chosen(rules, 1001, 2), Algorithm::kRing);
  EXPECT_THAT(rules[1].why, HasSubstr("500.0 us for 10000 bytes, one-shot 900.0 us"));
}

TEST(Fastest_Rules, ALittleFaster_DoesNotChangeTheAlgorithm) {
  const auto rules = fastestRules({took(1, Algorithm::kOneShot, 100), took(2, Algorithm::kRing, 100),
                                   took(104, Algorithm::kOneShot, 10'000), took(100, Algorithm::kRing, 10'000)},
                                  0.05);
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].algorithm, Algorithm::kOneShot);
}

TEST(Fastest_Rules, SeveralNumbersOfRanks_TheGreatestHoldsForMore) {
  const auto rules = fastestRules({took(1, Algorithm::kRing, 100, 8), took(1, Algorithm::kOneShot, 100, 2),
                                   took(1, Algorithm::kDoubleTree, 100, 4)},
                                  0.05);
  EXPECT_EQ(chosen(rules, 100, 2), Algorithm::kOneShot);
  EXPECT_EQ(chosen(rules, 100, 3), Algorithm::kDoubleTree);
  EXPECT_EQ(chosen(rules, 100, 4), Algorithm::kDoubleTree);
  EXPECT_EQ(chosen(rules, 1 << 30, 64), Algorithm::kRing);
}

TEST(Fastest_Rules, TwoLevelsAreFastest_HoldForSharedHostsOnly) {
  const auto rules = fastestRules({took(1, Algorithm::kTwoLevelOneShot, 100, 8), took(2, Algorithm::kOneShot, 100, 8),
                                   took(3, Algorithm::kRing, 100, 8), took(500, Algorithm::kTwoLevelRing, 10'000, 8),
                                   took(900, Algorithm::kOneShot, 10'000, 8), took(800, Algorithm::kRing, 10'000, 8)},
                                  0.05);
  EXPECT_EQ(chosen(rules, 100, 8, true), Algorithm::kTwoLevelOneShot);
  EXPECT_EQ(chosen(rules, 10'000, 8, true), Algorithm::kTwoLevelRing);
  EXPECT_EQ(chosen(rules, 100, 8), Algorithm::kOneShot);
  EXPECT_EQ(chosen(rules, 10'000, 8), Algorithm::kRing);
}

// What was not measured there may be faster where ranks share hosts.
TEST(Fastest_Rules, NoTwoLevelsMeasured_HoldForHostsOfOneRankOnly) {
  const auto rules = fastestRules({took(1, Algorithm::kOneShot, 1 << 20), took(2, Algorithm::kRing, 1 << 20)}, 0.05);
  EXPECT_EQ(chosen(rules, 1 << 20, 2), Algorithm::kOneShot);
  EXPECT_EQ(chosen(rules, 1 << 20, 4, true), chosen({}, 1 << 20, 4, true));
}

TEST(Fastest_Rules, TwoLevelsAreSlower_OthersHoldForAllHosts) {
  const auto rules =
      fastestRules({took(2, Algorithm::kTwoLevelRails, 1 << 20), took(1, Algorithm::kRing, 1 << 20)}, 0.05);
  EXPECT_EQ(chosen(rules, 1 << 20, 4), Algorithm::kRing);
  EXPECT_EQ(chosen(rules, 1 << 20, 4, true), Algorithm::kRing);
}

TEST(Fastest_Rules, NothingMeasured_AreNone) { EXPECT_TRUE(fastestRules({}, 0.05).empty()); }

}  // namespace
}  // namespace gloo_bypass
