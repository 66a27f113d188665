#include "tools/all_reduce_perf/check_pattern.h"

#include <gtest/gtest.h>

#include <vector>

#include "tools/all_reduce_perf/collective.h"

namespace gloo_bypass {
namespace {

constexpr std::size_t kCount = 4096;

std::int64_t combine(ReduceOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
  }
  return 0;
}

// Reduces `included` ranks' inputs in the type itself and counts differences from the expected result.
template <typename T>
std::uint64_t wrongOf(ReduceOp op, int ranks, const std::vector<int>& included, std::uint64_t iteration) {
  std::vector<T> result;
  for (const int rank : included) {
    std::vector<T> data(kCount);
    fillPattern(std::span<T>(data), CheckPattern(op, ranks, 3), rank);
    if (result.empty()) {
      result = data;
      continue;
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      switch (op) {
        case ReduceOp::kSum:
          result[i] = static_cast<T>(result[i] + data[i]);
          break;
        case ReduceOp::kProd:
          result[i] = static_cast<T>(result[i] * data[i]);
          break;
        case ReduceOp::kMin:
          result[i] = std::min(result[i], data[i]);
          break;
        case ReduceOp::kMax:
          result[i] = std::max(result[i], data[i]);
          break;
      }
    }
  }
  return countWrong(std::span<const T>(result), CheckPattern(op, ranks, iteration));
}

class CheckPatternOf : public ::testing::TestWithParam<ReduceOp> {};
INSTANTIATE_TEST_SUITE_P(Ops, CheckPatternOf,
                         ::testing::Values(ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax));

TEST_P(CheckPatternOf, CorrectReduction_HasNoWrongElement) {
  EXPECT_EQ((wrongOf<float>(GetParam(), 4, {0, 1, 2, 3}, 3)), 0u);
  EXPECT_EQ((wrongOf<double>(GetParam(), 3, {2, 0, 1}, 3)), 0u);
  EXPECT_EQ((wrongOf<std::int8_t>(GetParam(), 4, {3, 2, 1, 0}, 3)), 0u);
  EXPECT_EQ((wrongOf<std::uint8_t>(GetParam(), 16, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 3)), 0u);
  EXPECT_EQ((wrongOf<::gloo::float16>(GetParam(), 4, {0, 1, 2, 3}, 3)), 0u);
}

TEST_P(CheckPatternOf, RankLeftOut_IsSeen) {
  EXPECT_GT((wrongOf<float>(GetParam(), 2, {0}, 3)), kCount / 10);
  EXPECT_GT((wrongOf<float>(GetParam(), 4, {0, 1, 3}, 3)), kCount / 100);
}

TEST_P(CheckPatternOf, EarlierIteration_IsSeen) { EXPECT_GT((wrongOf<float>(GetParam(), 2, {0, 1}, 4)), kCount / 4); }

TEST_P(CheckPatternOf, DataShiftedByOne_IsSeen) {
  const CheckPattern pattern(GetParam(), 2, 0);
  std::vector<float> data(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    data[i] = static_cast<float>(combine(GetParam(), pattern.input(i + 1, 0), pattern.input(i + 1, 1)));
  EXPECT_GT(countWrong(std::span<const float>(data), pattern), kCount / 4);
}

TEST(CheckPattern, RankCountedTwiceInASum_IsSeen) {
  EXPECT_GT((wrongOf<float>(ReduceOp::kSum, 2, {0, 1, 1}, 3)), kCount / 2);
}

TEST(CheckPattern, OneWrongElement_IsCountedAsOne) {
  const CollectiveOptions options;
  std::vector<float> data(kCount);
  const CheckPattern pattern(ReduceOp::kSum, 1, 0);
  fillCheck(options, data.data(), kCount, 0, 1, 0);
  EXPECT_EQ(countWrong(options, data.data(), kCount, 1, 0), 0u);
  data[17] += 1;
  EXPECT_EQ(countWrong(options, data.data(), kCount, 1, 0), 1u);
}

TEST(FixedPoint, AnyOp_ReducingLeavesItAsItWas) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
    CollectiveOptions options;
    options.reduceOp = op;
    std::vector<float> data(8, 99.0f);
    fillFixedPoint(options, data.data(), data.size());
    for (const float value : data)
      EXPECT_EQ(combine(op, static_cast<std::int64_t>(value), static_cast<std::int64_t>(value)), value);
  }
}

}  // namespace
}  // namespace gloo_bypass
