// Timed changes, in virtual time.
#include "tools/fabric/core/schedule.h"

#include <gtest/gtest.h>

#include "tests/tools/fabric/core/descriptions.h"

namespace gloo_bypass::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Schedule, WithoutEvents_NeverHasAnything) {
  Schedule schedule(good("ranks = 2"));
  EXPECT_EQ(schedule.next(), std::nullopt);
  EXPECT_TRUE(schedule.due(std::chrono::hours(1)).empty());
}

TEST(Schedule, Down_EndsByItself) {
  Schedule schedule(good(R"(
    ranks = 3
    defaults.delay = "1ms"
    [[event]]
    at = "5s"
    from = "r0"
    to = "r1"
    down = "200ms"
  )"));
  EXPECT_EQ(schedule.next(), seconds(5));
  EXPECT_TRUE(schedule.due(milliseconds(4'999)).empty());
  std::vector<EdgeUpdate> updates = schedule.due(seconds(5));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].edge, (EdgeId{0, 1}));
  EXPECT_FALSE(updates[0].model.up);
  EXPECT_EQ(schedule.next(), milliseconds(5'200));
  EXPECT_TRUE(schedule.due(milliseconds(5'199)).empty());
  updates = schedule.due(milliseconds(5'200));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_TRUE(updates[0].model.up);
  EXPECT_EQ(updates[0].model.delay, milliseconds(1));
  EXPECT_EQ(schedule.next(), std::nullopt);
}

TEST(Schedule, DownForever_StaysDown) {
  Schedule schedule(good("ranks = 2", {{"event", "at=1s,from=*,to=*,down=forever"}}));
  EXPECT_EQ(schedule.due(seconds(1)).size(), 2u);
  EXPECT_EQ(schedule.next(), std::nullopt);
}

TEST(Schedule, ChangesThatOverlap_AreEachInForceForTheirTime) {
  Schedule schedule(good("ranks = 2", {{"event", "at=1s,for=10s,from=r0,to=r1,delay=50ms"},
                                       {"event", "at=2s,for=2s,from=r0,to=r1,loss=5%,delay=100ms"},
                                       {"event", "at=3s,from=r0,to=r1,down=5s"},
                                       {"event", "at=6s,from=r0,to=r1,rate=1Mbit/s"}}));
  struct Step {
    int at;
    bool up;
    int delayMs;
    double loss;
    std::uint64_t rate;
  };
  for (const Step& step :
       {Step{1, true, 50, 0, 0}, Step{2, true, 100, 0.05, 0}, Step{3, false, 100, 0.05, 0}, Step{4, false, 50, 0, 0},
        Step{6, false, 50, 0, 1'000'000}, Step{8, true, 50, 0, 1'000'000}, Step{11, true, 0, 0, 1'000'000}}) {
    EXPECT_EQ(schedule.next(), seconds(step.at));
    const std::vector<EdgeUpdate> updates = schedule.due(seconds(step.at));
    ASSERT_EQ(updates.size(), 1u) << step.at;
    const EdgeModel& model = updates[0].model;
    EXPECT_EQ(model.up, step.up) << step.at;
    EXPECT_EQ(model.delay, milliseconds(step.delayMs)) << step.at;
    EXPECT_DOUBLE_EQ(model.loss, step.loss) << step.at;
    EXPECT_EQ(model.rateBitsPerSecond, step.rate) << step.at;
  }
  EXPECT_EQ(schedule.next(), std::nullopt);
}

TEST(Schedule, CalledLate_GivesEachEdgeOnceAsItIsNow) {
  Schedule schedule(good("ranks = 2", {{"event", "at=1s,from=r0,to=r1,delay=1ms"},
                                       {"event", "at=2s,from=r0,to=r1,delay=2ms"},
                                       {"event", "at=3s,from=r1,to=r0,down=100ms"}}));
  const std::vector<EdgeUpdate> updates = schedule.due(seconds(10));
  ASSERT_EQ(updates.size(), 1u) << "the link that was down is up again, and was never said to be down";
  EXPECT_EQ(updates[0].edge, (EdgeId{0, 1}));
  EXPECT_EQ(updates[0].model.delay, milliseconds(2));
}

TEST(Schedule, AtTheSameTime_LaterEventOfTheFileDecides) {
  Schedule schedule(
      good("ranks = 3", {{"event", "at=1s,from=*,to=*,delay=1ms"}, {"event", "at=1s,from=r0,to=r1,delay=2ms"}}));
  const std::vector<EdgeUpdate> updates = schedule.due(seconds(1));
  ASSERT_EQ(updates.size(), 6u);
  for (const EdgeUpdate& each : updates) {
    EXPECT_EQ(each.model.delay, each.edge == (EdgeId{0, 1}) ? milliseconds(2) : milliseconds(1));
  }
}

TEST(Schedule, DrivingAnEmulator_LosesWhatIsOfferedWhileDown) {
  const Description description = good("ranks = 2", {{"event", "at=5s,from=r0,to=r1,down=200ms"}});
  EdgeEmulator edge = description.makeEdge(0, 1);
  Schedule schedule(description);
  constexpr TimePoint kStart = TimePoint{} + std::chrono::hours(1);
  for (int ms = 0; ms < 10'000; ++ms) {
    for (const EdgeUpdate& update : schedule.due(milliseconds(ms))) {
      if (update.edge == EdgeId{0, 1}) edge.setModel(update.model);
    }
    edge.offer(kStart + milliseconds(ms), 100);
  }
  EXPECT_EQ(edge.counters().lostWhileDown, 200u);
  EXPECT_EQ(edge.counters().delivered, 9'800u);
}

TEST(LongestRoundTrip, DelaysAndFullQueuesBothWays_AreTheirSum) {
  EXPECT_EQ(longestRoundTrip(good("ranks = 3\ndefaults.queue = \"unlimited\"\ndefaults.rate = \"1Mbit/s\"")),
            seconds(0));
  EXPECT_EQ(longestRoundTrip(good(R"(
    ranks = 3
    defaults.delay = "1ms"
    [[edge]]
    from = "r2"
    to = "r1"
    delay = "300ms"
    jitter = "20ms"
    rate = "1Mbit/s"
    queue = "10kB"
  )")),
            milliseconds(300 + 20 + 80 + 1));
}

TEST(LongestRoundTrip, EventThatPasses_Counts) {
  EXPECT_EQ(longestRoundTrip(good(R"(
    ranks = 2
    [[event]]
    at = "5s"
    for = "1s"
    from = "r0"
    to = "r1"
    both = true
    delay = "70ms"
  )")),
            milliseconds(140));
}

TEST(NarrowestEdges, NoRate_IsNoLimitWhateverTheQueue) {
  const NarrowestEdges found = narrowestEdges(good("ranks = 3\ndefaults.queue = \"10kB\""));
  EXPECT_EQ(found.rateBitsPerSecond, 0u);
  EXPECT_EQ(found.queueBytes, 0u);
}

TEST(NarrowestEdges, RatesAndQueuesOfSeveralEdgesAndEvents_LeastOfEachIsFound) {
  const NarrowestEdges found = narrowestEdges(good(R"(
    ranks = 3
    defaults.rate = "1Gbit/s"
    defaults.queue = "1MB"
    [[edge]]
    from = "r2"
    to = "r1"
    rate = "50Mbit/s"
    queue = "unlimited"
    [[event]]
    at = "5s"
    for = "1s"
    from = "r0"
    to = "r1"
    queue = "20kB"
  )"));
  EXPECT_EQ(found.rateBitsPerSecond, 50'000'000u);
  EXPECT_EQ(found.queueBytes, 20'000u);
}

}  // namespace
}  // namespace gloo_bypass::fabric
