#include "tools/common/statistics.h"

#include <gtest/gtest.h>

namespace gloo_bypass {
namespace {

TEST(Percentile, OddCount_MedianIsTheMiddle) { EXPECT_DOUBLE_EQ(percentile(std::vector<double>{1, 2, 30}, 50), 2); }
TEST(Percentile, EvenCount_MedianIsBetween) { EXPECT_DOUBLE_EQ(percentile(std::vector<double>{1, 2, 4, 30}, 50), 3); }
TEST(Percentile, HundredAndOneValues_P99IsTheHundredth) {
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back(i);
  EXPECT_DOUBLE_EQ(percentile(values, 99), 99);
  EXPECT_DOUBLE_EQ(percentile(values, 0), 0);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 100);
}
TEST(Percentile, BetweenTwoValues_InterpolatesLinearly) {
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{0, 10}, 99), 9.9);
}
TEST(Percentile, OneValueOrNone_IsThatValueOrZero) {
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{7}, 99), 7);
  EXPECT_DOUBLE_EQ(percentile({}, 50), 0);
}
TEST(Percentile, OutOfRange_IsClamped) {
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{1, 2}, 150), 2);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{1, 2}, -1), 1);
}

TEST(Percentile, OfSorted_IsNumpysDefault) {
  // numpy.percentile([9, 1, 4, 2, 7], [25, 90, 99])
  const std::vector<double> values = sorted({9, 1, 4, 2, 7});
  EXPECT_DOUBLE_EQ(percentile(values, 25), 2);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 8.2);
  EXPECT_DOUBLE_EQ(percentile(values, 99), 8.92);
}

TEST(Mean, Values_AreAveraged) {
  EXPECT_DOUBLE_EQ(mean(std::vector<double>{1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(mean({}), 0);
}

}  // namespace
}  // namespace gloo_bypass
