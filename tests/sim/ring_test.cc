// Gloo's ring schedule over sessions (transport/README.md), and the delays that a transport must not add to it.
#include <gtest/gtest.h>

#include <vector>

#include "tests/sim/pair.h"
#include "tools/simulation/core/ring_bounds.h"
#include "tools/simulation/core/ring_group.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

LinkModel rackLink() {
  LinkModel link;
  link.setBytesPerSecond(1.25e9);
  link.delay = microseconds(25);
  return link;
}

// A ring of equal links; only the link from rank 0 to the rank before it, both ways, may differ.
class Ring {
 public:
  Ring(const RingSchedule& schedule, const LinkModel& link, const LinkModel& first)
      : schedule_(schedule),
        links_(simulation, schedule.ranks(),
               [&](std::size_t from, std::size_t to) {
                 const bool isFirst =
                     (from == 0 && to == schedule.ranks() - 1) || (to == 0 && from == schedule.ranks() - 1);
                 return RingLinks::Edge{isFirst ? first : link, 2 * from + (to == schedule.previous(from) ? 0 : 1) + 1};
               }),
        group(simulation, links_, schedule_, {.maxDatagramBytes = 8972}) {
    group.connect();
    simulation.runFor(seconds(2));
  }
  bool runUntilDone(Duration limit) {
    return simulation.runUntil(simulation.now() + limit, [this] { return group.done(); });
  }

  Simulation simulation;

 private:
  const RingSchedule schedule_;
  RingLinks links_;

 public:
  RingGroup group;
};

class RingSteadyState : public testing::TestWithParam<std::size_t> {};

// The bound is 2 N iterations in each one-way delay of the long edge. A transport that waits for acknowledgements or
// grants gets 2 or fewer, whatever N.
TEST_P(RingSteadyState, OneLongEdge_RunsAtTwoIterationsARankAndDelay) {
  const std::size_t ranks = GetParam();
  constexpr Duration kOneWay = milliseconds(300);
  LinkModel wan = rackLink();
  wan.delay = kOneWay;
  wan.queueBytes = 64 << 20;
  // Long enough that the first half lasts until after the measurement.
  const RingSchedule schedule(ranks, std::uint64_t{80} * ranks << 20);
  Ring ring(schedule, rackLink(), wan);
  ring.group.start();
  // The congestion window opens first; the steady state counts.
  ring.simulation.runFor(20 * kOneWay);
  const int before = ring.group.rank(0).receives();
  ring.simulation.runFor(8 * kOneWay);
  const int after = ring.group.rank(0).receives();
  ASSERT_LT(after, schedule.iterations());
  const double perDelay = (after - before) / 8.0;
  const double bound = 2.0 * static_cast<double>(ranks);
  EXPECT_GT(perDelay, 0.75 * bound);
  EXPECT_LE(perDelay, 1.05 * bound);
  ASSERT_TRUE(ring.runUntilDone(200 * kOneWay));
  EXPECT_LE(ring.group.maxMemoryBytes(), memoryBound(SessionConfig{}, true));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingSteadyState, testing::Values(std::size_t{4}, std::size_t{8}),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(Ring, EightRanksInARack_Finish) {
  LinkModel link = rackLink();
  link.queueBytes = 1 << 20;
  const RingSchedule schedule(8, std::uint64_t{32} << 20);
  Ring ring(schedule, link, link);
  ring.group.start();
  // 56 MiB through each link take 48 ms at line rate.
  EXPECT_TRUE(ring.runUntilDone(milliseconds(100))) << ring.group.progress();
  EXPECT_EQ(ring.group.receivedBytes(), 2 * 7 * schedule.bytes());
  EXPECT_EQ(ring.group.error(), "");
}

TEST(RingSchedule, AnySize_MovesTwiceAllButOnceEachByteFromRankToRank) {
  for (const std::size_t ranks : {2u, 3u, 8u, 23u, 128u}) {
    for (const std::uint64_t bytes : {4u, 400u, 1u << 20, 10'000'000u, 40'000'004u}) {
      const RingSchedule schedule(ranks, bytes);
      EXPECT_GE(schedule.segmentsPerRank(), 2u);
      EXPECT_LE(schedule.segmentBytes(), RingSchedule::kGlooSegmentBytes);
      std::uint64_t sent = 0, received = 0;
      for (int half = 0; half < RingSchedule::kHalves; ++half) {
        for (int i = 0; i < schedule.iterations(); ++i) {
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            sent += schedule.sendBytes(rank, half, i);
            received += schedule.receiveBytes(rank, half, i);
            EXPECT_EQ(schedule.sendBytes(rank, half, i), schedule.receiveBytes(schedule.previous(rank), half, i));
          }
        }
      }
      EXPECT_EQ(sent, 2 * (ranks - 1) * bytes) << ranks << " ranks";
      EXPECT_EQ(received, sent);
    }
  }
}

TEST(RingSchedule, LargeVector_IsCutAsGlooCutsIt) {
  const RingSchedule schedule(4, std::uint64_t{64} << 20);
  EXPECT_EQ(schedule.segmentsPerRank(), 16u);
  EXPECT_EQ(schedule.segmentBytes(), std::size_t{1} << 20);
  EXPECT_EQ(schedule.iterations(), 48);
  EXPECT_EQ(RingSchedule(4, std::uint64_t{64} << 20, 8 << 20).segmentsPerRank(), 2u);
}

// The reduce-scatter's last segment arrives at its owner: rank r ends with segments r, and begins the all-gather with
// them.
TEST(RingSchedule, Halves_FitTogether) {
  const RingSchedule schedule(3, 12 * 100 - 40, 200);  // segments of 196 bytes, the last one shorter
  ASSERT_EQ(schedule.segmentsPerRank(), 2u);
  const std::size_t last = schedule.sendBytes(2, 1, 1);  // rank 2's second segment is the vector's last one
  EXPECT_LT(last, schedule.segmentBytes());
  EXPECT_EQ(schedule.receiveBytes(2, 0, schedule.iterations() - 1), last);
}

TEST(RingBounds, OneLongEdge_ApproachesTwoIterationsARankAndDelay) {
  std::vector<IdealEdge> edges(4);
  edges[3].delay = milliseconds(300);
  const RingSchedule schedule(4, std::uint64_t{400} << 20);
  const RingBounds bounds = ringBounds(schedule, edges);
  EXPECT_EQ(bounds.pipeline, milliseconds(300) * (2 * schedule.iterations()) / 8);
  EXPECT_GE(bounds.schedule, bounds.pipeline * 95 / 100);
  EXPECT_LE(bounds.schedule, bounds.pipeline * 105 / 100);
  EXPECT_EQ(bounds.propagation, milliseconds(600));
  EXPECT_EQ(bounds.serialisation, Duration{0});
  EXPECT_EQ(bounds.alphaBeta, milliseconds(450));
}

TEST(RingBounds, EdgeThatLosesFrames_CostsRoundTrips) {
  std::vector<IdealEdge> edges(4);
  edges[3].delay = edges[3].roundTrip = milliseconds(300);
  const RingSchedule schedule(4, std::uint64_t{400} << 20);
  EXPECT_EQ(ringBounds(schedule, edges).scheduleWithLoss, ringBounds(schedule, edges).schedule);
  // 4 segments of 743 frames each follow one another in a delay: nearly always one waits for a retransmission, seldom
  // for a second one.
  edges[3].loss = 0.001;
  const RingBounds bounds = ringBounds(schedule, edges);
  EXPECT_GT(bounds.scheduleWithLoss, bounds.schedule * 17 / 10);
  EXPECT_LT(bounds.scheduleWithLoss, bounds.schedule * 21 / 10);
}

TEST(RingBounds, SlowEdge_IsItsSerialisation) {
  std::vector<IdealEdge> edges(4);
  for (IdealEdge& edge : edges) edge.rateBitsPerSecond = 10'000'000'000;
  edges[3].rateBitsPerSecond = 50'000'000;
  const RingSchedule schedule(4, 10'000'000);
  const RingBounds one = ringBounds(schedule, edges), two = ringBounds(schedule, edges, 2);
  const double frames = 10e6 / 1412, seconds = 1.5 * 8 * (10e6 + frames * 102) / 50e6;
  EXPECT_NEAR(std::chrono::duration<double>(one.serialisation).count(), seconds, 0.001);
  EXPECT_NEAR(std::chrono::duration<double>(one.schedule).count(), seconds, 0.05 * seconds);
  EXPECT_NEAR(std::chrono::duration<double>(two.schedule).count(), 2 * seconds, 0.1 * seconds);
  EXPECT_NEAR(std::chrono::duration<double>(one.alphaBeta).count(), 1.5 * 8 * 10e6 / 50e6, 0.001);
}

}  // namespace
}  // namespace gloo_bypass::sim
