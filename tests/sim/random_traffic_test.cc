// Thousands of random paths with random traffic: every message bit-exact and in order, no deadlock, no spurious
// failure, memory bounded, counters that add up, an orderly end.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sim/scenario.h"
#include "tests/sim/settings.h"

namespace gloo_bypass::sim {
namespace {

constexpr int kMaxFailuresShown = 5;

template <typename Make>
void runAll(std::uint64_t runs, std::uint64_t firstSeed, Make make) {
  int failures = 0;
  forEachSeed(runs, firstSeed, [&](std::uint64_t seed) {
    if (failures >= kMaxFailuresShown) return;
    const Scenario scenario = make(seed);
    const std::vector<std::string> faults = runScenario(scenario);
    if (faults.empty()) return;
    ++failures;
    std::string text;
    for (const std::string& fault : faults) text += "\n  * " + fault;
    ADD_FAILURE() << scenario.describe() << text;
  });
}

TEST(RandomTraffic, LossyPaths_EveryMessageArrivesIntactAndInOrder) { runAll(3000, 1, lossyScenario); }

TEST(RandomTraffic, LosslessLinks_EveryMessageArrivesIntactAndInOrder) { runAll(1000, 1'000'001, losslessScenario); }

}  // namespace
}  // namespace gloo_bypass::sim
