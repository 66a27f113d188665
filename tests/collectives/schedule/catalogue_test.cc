#include "collectives/schedule/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass::collectives {
namespace {

using ::testing::HasSubstr;

TEST(Catalogue_Choose, AnySizeAndRanks_GivesAnAlgorithmOfTheKind) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int size : {1, 2, 3, 8, 17, 4096}) {
      for (std::size_t bytes = 0; bytes < (std::size_t{1} << 40); bytes = 4 * bytes + 1) {
        const Choice choice = choose(static_cast<Kind>(kind), bytes, size);
        EXPECT_NE(findAlgorithm(static_cast<Kind>(kind), choice.algorithm), nullptr);
        EXPECT_GE(choice.partBytes, 4096u);
      }
    }
  }
}

TEST(Catalogue_Explain, SaysAlgorithmCostAndReason) {
  EXPECT_THAT(explain(Kind::kAllReduce, 8192, 2), HasSubstr("one-shot (1 round, n (p - 1) bytes). short: one network"));
  EXPECT_THAT(explain(Kind::kAllReduce, 64 << 20, 8), HasSubstr("ring (2 (p - 1) rounds"));
}

TEST(Catalogue_Names, AreUniqueAndFound) {
  for (int i = 0; i < kAlgorithms; ++i) {
    EXPECT_EQ(algorithmNamed(nameOf(static_cast<Algorithm>(i))), static_cast<Algorithm>(i));
  }
  EXPECT_FALSE(algorithmNamed("rung"));
}

}  // namespace
}  // namespace gloo_bypass::collectives
