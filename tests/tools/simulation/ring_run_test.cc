// Ring all-reduces of the real sessions over described fabrics, in virtual time, against the bound of Gloo's schedule.
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "tests/sim/pair.h"
#include "tests/sim/settings.h"
#include "tools/common/error.h"
#include "tools/simulation/simulation_options.h"
#include "tools/simulation/simulation_report.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::milliseconds;

RingRunResult run(const std::vector<std::string>& arguments) {
  std::vector<const char*> words{"fabric_simulation"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  const auto parsed = parseSimulationOptions(static_cast<int>(words.size()), words.data());
  const auto& options = std::get<SimulationOptions>(parsed);
  return runRing(describedFabric(options, options.ranks.empty() ? 0 : options.ranks.front()), options.run,
                 [](const RingProgress&) { return true; });
}

std::string usageErrorOf(const std::vector<std::string>& arguments) {
  try {
    (void)run(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// The cell of the result's line.
std::string csvCell(const RingRunResult& result, const std::string& column) {
  std::istringstream csv(reportCsv({result}));
  std::string names, line, name, cell;
  std::getline(csv, names);
  std::getline(csv, line);
  std::istringstream namesLeft(names), cellsLeft(line);
  while (std::getline(namesLeft, name, ',') && std::getline(cellsLeft, cell, ',')) {
    if (name == column) return cell;
  }
  return "no such column";
}

double ratio(const RingRunResult& result, Duration bound) {
  return static_cast<double>(result.median().count()) / static_cast<double>(bound.count());
}

const std::string kLongEdge = std::string(FABRIC_EXAMPLES) + "/edge-300ms.toml";
const std::string kSites = std::string(FABRIC_EXAMPLES) + "/ring-23-sites.toml";
// Sanitizers have a tenth.
const std::string kSize = kSanitized ? "8MiB" : "32MiB";

TEST(RingRun, LongEdgeDefaultSegment_IsWithinAQuarterOfTheSchedule) {
  const RingRunResult result = run({"--config", kLongEdge, "--bytes", kSize});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_LE(ratio(result, result.bounds.schedule), 1.25);
  EXPECT_GE(ratio(result, result.bounds.schedule), 0.99);
  EXPECT_EQ(result.sessions.retransmits, 0u);
}

TEST(RingRun, LongEdgeTwoSegmentsARank_IsWithinAQuarterOfPropagationAndSerialisation) {
  const RingRunResult result = run({"--config", kLongEdge, "--bytes", kSize, "--segment-bytes", "two"});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_EQ(result.segmentsPerRank, 2u);
  EXPECT_GT(result.bounds.propagation, milliseconds(600));
  EXPECT_LE(ratio(result, result.bounds.physics()), 1.25);
}

class RingRunLoss : public testing::TestWithParam<const char*> {};

// A loss costs a round trip of the long edge, the schedule's own unit: without redundancy a transport can only be near
// the schedule with retransmissions.
TEST_P(RingRunLoss, LongEdge_IsWithinAQuarterOfTheScheduleWithRepetitions) {
  for (const char* const segment : {"1MiB", "two"}) {
    const RingRunResult result = run(
        {"--config", kLongEdge, "--bytes", kSize, "--segment-bytes", segment, "--loss", GetParam(), "--fec", "off"});
    ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
    EXPECT_LE(ratio(result, result.bounds.scheduleWithLoss), 1.25) << segment;
    EXPECT_GT(result.bounds.scheduleWithLoss, result.bounds.schedule);
    EXPECT_GT(result.edges.lostRandomly, 0u);
    EXPECT_GT(result.sessions.retransmits, 0u);
    EXPECT_EQ(result.edges.lost(), result.edges.lostRandomly);
  }
}

// With redundancy it is near the schedule without any loss.
TEST_P(RingRunLoss, LongEdgeWithRepairFrames_IsWithinAQuarterOfTheScheduleWithoutLoss) {
  for (const char* const segment : {"1MiB", "two"}) {
    const RingRunResult result =
        run({"--config", kLongEdge, "--bytes", kSize, "--segment-bytes", segment, "--loss", GetParam()});
    ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
    EXPECT_LE(ratio(result, result.bounds.schedule), 1.25) << segment;
    EXPECT_GT(result.sessions.framesRecovered, 0u) << segment;  // the short edges lose too, and repeat
    EXPECT_GT(result.edges.lostRandomly, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, RingRunLoss, testing::Values("0.1%", "1%"), [](const auto& info) {
  return std::string(info.param) == "1%" ? "OnePercent" : "OneInAThousand";
});

TEST(RingRunLoss, LongEdgeFewLargeFrames_IsWithinHalfOfTheScheduleWithoutLoss) {
  const RingRunResult result = run({"--config", kLongEdge, "--bytes", kSize, "--loss", "0.1%", "--mtu", "32768"});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_LE(ratio(result, result.bounds.schedule), 1.5);
}

TEST(RingRun, SitesOfARing_AreWithinAQuarterOfTheScheduleWhateverTheRanks) {
  for (const char* const ranks : {"2", "4", "8", "23"}) {
    const RingRunResult result = run({"--config", kSites, "--ranks", ranks, "--bytes", "4MB"});
    ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
    EXPECT_EQ(std::to_string(result.ranks), ranks);
    EXPECT_LE(ratio(result, result.bounds.schedule), 1.25) << ranks;
    EXPECT_EQ(result.payloadBytes, 4 * 2 * (result.ranks - 1) * 4'000'000) << ranks;
  }
}

// As far from their neighbours as 128 and 64 sites on that ring: 0.43 and 0.81 ms there and back. Where sends wait for
// grants and acknowledgements these take 1.5 and 1.9 times as long.
TEST(RingRun, NeighboursUnderAMillisecond_AreOnTheSchedule) {
  for (const char* const delay : {"215us", "403us"}) {
    const RingRunResult result =
        run({"--ranks", "8", "--defaults", std::string("rate=10Gbit/s,queue=16MiB,delay=") + delay, "--bytes",
             kSanitized ? "4MB" : "10MB", "--iterations", "1"});
    ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
    EXPECT_LE(ratio(result, result.bounds.schedule), 1.1) << delay;
    EXPECT_EQ(result.sessions.rendezvousMessages, 0u) << delay;
    EXPECT_LE(result.maxSessionMemoryBytes, memoryBound(SessionConfig{}, true)) << delay;
  }
}

// The queue is shorter than a segment. Delay-based control leaves the bursts room: BBR loses 15 times as many frames
// there and takes 1.29 times the schedule's time, sends that wait 2.19 times.
TEST(RingRun, NeighboursUnderAMillisecondShallowQueue_AreWithinAQuarterOfTheSchedule) {
  const RingRunResult result = run({"--ranks", "16", "--defaults", "rate=10Gbit/s,queue=300kB,delay=160us", "--bytes",
                                    kSanitized ? "4MB" : "10MB", "--iterations", "1"});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_LE(ratio(result, result.bounds.schedule), 1.25);
  EXPECT_EQ(result.sessions.repairFramesSent, 0u);
}

TEST(RingRun, SlowEdge_TakesItsSerialisation) {
  const RingRunResult result = run({"--config", std::string(FABRIC_EXAMPLES) + "/edge-50mbit.toml", "--bytes", "4MB"});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_LE(ratio(result, result.bounds.serialisation), 1.1);
  EXPECT_GE(ratio(result, result.bounds.serialisation), 0.95);
}

TEST(RingRun, EqualGroupsOnASlowEdge_ShareItEqually) {
  const RingRunResult result =
      run({"--config", std::string(FABRIC_EXAMPLES) + "/edge-50mbit.toml", "--bytes", "4MB", "--groups", "2"});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_GT(result.fairness, 0.9);
  EXPECT_LE(result.fairness, 1.0);
  ASSERT_EQ(result.times.size(), 2u);
  EXPECT_EQ(result.times[0].size(), 3u);
  EXPECT_EQ(result.times[1].size(), 3u);
  EXPECT_NEAR(ratio(result, result.bounds.schedule), 1, 0.15);
}

TEST(RingRun, SameSeed_IsTheSameRun) {
  const std::vector<std::string> arguments{"--config", kLongEdge, "--bytes", "4MB", "--loss", "1%"};
  const RingRunResult first = run(arguments), again = run(arguments);
  EXPECT_EQ(first.times, again.times);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.edges.offeredBytes, again.edges.offeredBytes);
  std::vector<std::string> other = arguments;
  other.insert(other.end(), {"--seed", "2"});
  EXPECT_NE(run(other).edges.lostRandomly, first.edges.lostRandomly);
}

TEST(RingRun, LinkDownForAWhile_IsSurvivedAndCounted) {
  const RingRunResult result = run({"--config", kSites, "--ranks", "4", "--bytes", "40MB", "--event",
                                    "at=50ms,from=r2,to=r1,down=100ms", "--warm-ups", "0", "--iterations", "1"});
  ASSERT_EQ(result.end, RingRunEnd::kDone) << result.error;
  EXPECT_GT(result.edges.lostWhileDown, 0u);
  EXPECT_GE(result.median(), milliseconds(150));
}

TEST(RingRun, LinkDownForEver_FailsAndSaysWhy) {
  const RingRunResult result =
      run({"--config", kSites, "--ranks", "3", "--bytes", "4MB", "--event", "at=1ms,from=r2,to=r1,down=forever",
           "--event", "at=1ms,from=r1,to=r2,down=forever"});
  EXPECT_EQ(result.end, RingRunEnd::kFailed);
  EXPECT_NE(result.error.find(": nothing was heard from the peer"), std::string::npos) << result.error;
}

TEST(RingRun, TimeLimit_EndsTheRun) {
  const RingRunResult result = run({"--config", kLongEdge, "--time-limit", "500ms"});
  EXPECT_EQ(result.end, RingRunEnd::kFailed);
  EXPECT_NE(result.error.find("not finished within 0.5 s"), std::string::npos) << result.error;
  EXPECT_EQ(result.median(), Duration{0});
}

TEST(RingRun, ToldToStop_KeepsWhatThereIs) {
  SimulationOptions options;
  options.configPath = kLongEdge;
  int asked = 0;
  const RingRunResult result = runRing(describedFabric(options, 0), options.run, [&](const RingProgress& progress) {
    EXPECT_LT(progress.share, 1);
    return ++asked < 3;
  });
  EXPECT_EQ(result.end, RingRunEnd::kInterrupted);
  EXPECT_EQ(asked, 3);
  EXPECT_GT(result.payloadBytes, 0u);
}

TEST(RingRun, RanksInSites_HaveTheSitesDelays) {
  SimulationOptions options;
  options.configPath = kSites;
  options.sites = 4;
  const fabric::Description description = describedFabric(options, 8);
  EXPECT_EQ(description.edge(1, 0).delay, std::chrono::microseconds(28));
  EXPECT_EQ(description.edge(2, 1).delay, std::chrono::microseconds(28 + 6000));
}

TEST(JainIndex, Shares_AreJudged) {
  EXPECT_DOUBLE_EQ(jainIndex({}), 1);
  EXPECT_DOUBLE_EQ(jainIndex({3, 3, 3}), 1);
  EXPECT_DOUBLE_EQ(jainIndex({5, 0, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(jainIndex({1, 3}), 0.8);
}

TEST(SimulationReport, FairnessInCsv_IsOfSeveralGroupsThatEnded) {
  RingRunResult result;
  result.groups = 4;
  for (const RingRunEnd end : {RingRunEnd::kFailed, RingRunEnd::kInterrupted}) {
    result.end = end;
    EXPECT_EQ(csvCell(result, "fairness"), "");
  }
  result.end = RingRunEnd::kDone;
  EXPECT_EQ(csvCell(result, "fairness"), "1.000000");
  EXPECT_EQ(csvCell(result, "cpu_s"), "0.000");
  result.groups = 1;
  EXPECT_EQ(csvCell(result, "fairness"), "");
}

TEST(SimulationOptions, BadInput_IsOneLineThatNamesIt) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "over what fabric"},
      {{"--config", "/nowhere.toml"}, "/nowhere.toml"},
      {{"--config", kSites, "--ranks", "1"}, "--ranks"},
      {{"--config", kSites, "--ranks", "129"}, "--ranks"},
      {{"--config", kSites, "--bytes", "10"}, "--bytes 10: has no unit"},
      {{"--config", kSites, "--segment-bytes", "1B"}, "--segment-bytes 1B"},
      {{"--config", kSites, "--loss", "120%"}, "--loss 120%"},
      {{"--config", kSites, "--mtu", "575"}, "--mtu"},  // the protocol's smallest datagram does not fit
      {{"--config", kSites, "--groups", "0"}, "--groups"},
      {{"--config", kSites, "--congestion-control", "reno"}, "--congestion-control"},
      {{"--config", kSites, "--time-limit", "soon"}, "--time-limit soon"},
      {{"--config", kSites, "--edge", "from=r99,to=r1,delay=1ms"}, "r99"},
      {{"--config", kLongEdge, "--ranks", "2"}, "r3"},
      {{"--config", kSites, "--sites", "4"}, "--sites 4: give --ranks"},
      {{"--config", kSites, "--sites", "4", "--ranks", "3"}, "--sites 4"},
      {{"--config", kSites, "--host", "name=extra", "--ranks", "4"}, "5 hosts"},
  };
  for (const auto& [arguments, expected] : cases) {
    const std::string error = usageErrorOf(arguments);
    EXPECT_NE(error.find(expected), std::string::npos) << "'" << error << "' should name " << expected;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace gloo_bypass::sim
