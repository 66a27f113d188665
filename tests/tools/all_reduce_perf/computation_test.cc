#include "tools/all_reduce_perf/computation.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>

namespace gloo_bypass {
namespace {

double processorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(Computation, Parts_AreReallyComputed) {
  constexpr std::uint64_t kParts = 50'000;
  constexpr double kOperations = kParts * 2.0 * 96 * 96, kMostASecond = 4e11;  // no core does as many
  Computation computation;
  const double start = processorSeconds();
  computation.run(kParts);
  EXPECT_GT(processorSeconds() - start, kOperations / kMostASecond);
}

TEST(Computation, Fastest_IsNoLongerThanAllOfThem) {
  Computation computation;
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds fastest = computation.fastest(5'000, 3);
  EXPECT_LE(3 * fastest, std::chrono::steady_clock::now() - start);
  EXPECT_GT(static_cast<double>(fastest.count()) * 1e-9, 5'000 * 2.0 * 96 * 96 / 4e11);
}

TEST(Computation, NoParts_AreNoWork) {
  Computation computation;
  const double start = processorSeconds();
  computation.run(0);
  EXPECT_LT(processorSeconds() - start, 0.01);
}

}  // namespace
}  // namespace gloo_bypass
