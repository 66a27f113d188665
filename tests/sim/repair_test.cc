// Repair frames end to end: when they are sent, what they recover, what they cost, and that congestion control still
// sees the losses.
#include <gtest/gtest.h>

#include "tests/sim/pair.h"
#include "tests/sim/stream.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kRate =
    100e6 / 8;  // bytes a second; with less, under sanitizers too, blocks would be short, and other ones

LinkModel longLink(double loss) {
  LinkModel link;
  link.setBytesPerSecond(kRate);
  link.delay = milliseconds(50);
  link.loss = loss;
  link.queueBytes = 8 << 20;
  return link;
}

// A stream one way over `forth`, with nothing lost on the way back.
struct Streamed {
  Streamed(const LinkModel& forth, const SessionConfig& a, const SessionConfig& b)
      : simulation(),
        linkForth(simulation, forth, 1),
        linkBack(simulation, longLink(0), 2),
        a(simulation, a, 11, 12),
        b(simulation, b, 13, 14),
        stream(this->a, this->b, 256 << 10, 32) {
    this->a.attach(linkForth, this->b);
    this->b.attach(linkBack, this->a);
    this->a.connect(this->b, 1472);
    this->b.connect(this->a, 1472);
    simulation.runFor(milliseconds(500));
    stream.start();
  }
  ChannelCounters sender() const { return a.session().counters(); }
  ChannelCounters receiver() const { return b.session().counters(); }

  Simulation simulation;
  Link linkForth, linkBack;
  Host a, b;
  Stream stream;
};

SessionConfig configOf(Repair repair) {
  SessionConfig config;
  config.repair = repair;
  return config;
}
const SessionConfig kAuto = configOf({Repair::Mode::kAuto, 0});
const SessionConfig kOn = configOf({Repair::Mode::kOn, 0});
const SessionConfig kOff = configOf({Repair::Mode::kOff, 0});

TEST(Repair, LongPathThatLoses_HardlyRepeatsAnything) {
  Streamed with(longLink(0.01), kAuto, kAuto), without(longLink(0.01), kOff, kOff);
  with.simulation.runFor(seconds(8));
  without.simulation.runFor(seconds(8));
  EXPECT_GT(with.receiver().framesRecovered, 100u);
  EXPECT_LT(with.sender().retransmits, without.sender().retransmits / 10);
  EXPECT_EQ(without.sender().repairFramesSent, 0u);
  // For a loss of 1 % blocks of 128 need about 7.
  EXPECT_LT(with.sender().repairFramesSent, with.sender().packetsSent / 10);
  EXPECT_GT(with.stream.deliveredBytes(), without.stream.deliveredBytes() * 8 / 10);
}

// With few frames in a round trip a block of half that time would be so short that 18 % of all frames were repair
// frames.
TEST(Repair, SlowLongPathThatLoses_HasBlocksLongEnough) {
  LinkModel link = longLink(0.01);
  link.setBytesPerSecond(kRate / 4);
  Streamed streamed(link, kAuto, kAuto);
  streamed.simulation.runFor(seconds(12));
  const ChannelCounters sent = streamed.sender();
  EXPECT_GT(sent.packetsSent, 20'000u);
  EXPECT_LT(static_cast<double>(sent.repairFramesSent), 0.15 * static_cast<double>(sent.packetsSent));
  EXPECT_LT(sent.retransmits, sent.packetsSent / 500);
}

TEST(Repair, LongPathThatLosesNothing_HasNoRepairFrames) {
  Streamed streamed(longLink(0), kAuto, kAuto);
  streamed.simulation.runFor(seconds(3));
  EXPECT_GT(streamed.stream.deliveredBytes(), 1u << 20);
  EXPECT_EQ(streamed.sender().repairFramesSent, 0u);
}

// Up to a millisecond there and back, in a rack or between towns: there Swift takes loss for a full queue, and more
// frames do not help.
class RepairWithSwift : public testing::TestWithParam<int> {};

TEST_P(RepairWithSwift, PathThatLoses_HasRepairFramesOnlyWhenAskedFor) {
  LinkModel link = longLink(0.01);
  link.delay = std::chrono::microseconds(GetParam());
  Pair automatic(PathModel::symmetric(link, 1472), kAuto, 1), asked(PathModel::symmetric(link, 1472), kOn, 1);
  for (Pair* const pair : {&automatic, &asked}) {
    ASSERT_TRUE(pair->connectWithin(seconds(5)));
    Stream stream(pair->a, pair->b, 256 << 10, 32);
    stream.start();
    pair->simulation.runFor(seconds(2));
    EXPECT_GT(stream.deliveredBytes(), 1u << 20);
  }
  EXPECT_EQ(automatic.a.session().counters().repairFramesSent, 0u);
  EXPECT_GT(asked.a.session().counters().repairFramesSent, 0u);
  EXPECT_GT(asked.b.session().counters().framesRecovered, 0u);
}

INSTANTIATE_TEST_SUITE_P(OneWayMicroseconds, RepairWithSwift, testing::Values(100, 350),
                         testing::PrintToStringParamName());

TEST(Repair, LossThatStops_EndsIt) {
  Streamed streamed(longLink(0.01), kAuto, kAuto);
  streamed.simulation.runFor(seconds(5));
  EXPECT_GT(streamed.sender().repairFramesSent, 0u);
  streamed.linkForth.setModel(longLink(0));
  // Two spans of 16384 frames, and a round trip.
  const std::uint64_t sent = streamed.sender().packetsSent;
  ASSERT_TRUE(streamed.simulation.runUntil(streamed.simulation.now() + seconds(600),
                                           [&] { return streamed.sender().packetsSent > sent + 40'000; }));
  const std::uint64_t repairs = streamed.sender().repairFramesSent;
  streamed.simulation.runFor(seconds(2));
  EXPECT_EQ(streamed.sender().repairFramesSent, repairs);
}

TEST(Repair, PeerThatDoesWithout_GetsNone) {
  for (const bool senderIsOff : {false, true}) {
    Streamed streamed(longLink(0.01), senderIsOff ? kOff : kOn, senderIsOff ? kOn : kOff);
    streamed.simulation.runFor(seconds(3));
    EXPECT_EQ(streamed.sender().repairFramesSent, 0u);
    EXPECT_EQ(streamed.receiver().invalidReceived, 0u);
    EXPECT_GT(streamed.sender().retransmits, 0u);
  }
}

// The figure is exact for frames in full blocks.
TEST(Repair, FixedShare_IsKept) {
  Streamed streamed(longLink(0), configOf({Repair::Mode::kOn, 10}), kAuto);
  streamed.simulation.runFor(seconds(4));
  const ChannelCounters sent = streamed.sender();
  const double share =
      static_cast<double>(sent.repairFramesSent) / static_cast<double>(sent.packetsSent - sent.repairFramesSent);
  EXPECT_GT(share, 0.09);
  EXPECT_LT(share, 0.12);
}

// Losses in a row exceed chance: after the first failed blocks there are more repair frames.
TEST(Repair, Bursts_AreMetWithMoreOfIt) {
  LinkModel bursts = longLink(0);
  bursts.burstEnter = 0.001;  // five frames in a row, four of them lost: 0.4 %
  Streamed streamed(bursts, kAuto, kAuto);
  streamed.simulation.runFor(seconds(6));
  const ChannelCounters before = streamed.sender();
  const std::uint64_t recoveredBefore = streamed.receiver().framesRecovered;
  streamed.simulation.runFor(seconds(12));
  const std::uint64_t repeated = streamed.sender().retransmits - before.retransmits;
  const std::uint64_t recovered = streamed.receiver().framesRecovered - recoveredBefore;
  EXPECT_GT(recovered, 4 * repeated);
  EXPECT_LT(streamed.sender().repairFramesSent, streamed.sender().packetsSent / 5);
}

// Late frames do not count as lost for ever: without losses, recoveries are no reason to continue.
TEST(Repair, ReorderingAlone_TurnsItOffAgain) {
  LinkModel link = longLink(0.01);
  Streamed streamed(link, kAuto, kAuto);
  streamed.simulation.runFor(seconds(5));
  link.loss = 0;
  link.reordering = 0.02;
  link.reorderDelay = milliseconds(2);
  streamed.linkForth.setModel(link);
  const std::uint64_t sent = streamed.sender().packetsSent;
  ASSERT_TRUE(streamed.simulation.runUntil(streamed.simulation.now() + seconds(600),
                                           [&] { return streamed.sender().packetsSent > sent + 45'000; }));
  const std::uint64_t repairs = streamed.sender().repairFramesSent, packets = streamed.sender().packetsSent;
  streamed.simulation.runFor(seconds(2));
  EXPECT_LT(streamed.sender().repairFramesSent - repairs, (streamed.sender().packetsSent - packets) / 20);
}

// A full path also loses frames. Those that repair recovers count as lost, so the sender does not exceed the path's
// rate.
TEST(Repair, FullQueue_IsNotFilledFurther) {
  LinkModel link = longLink(0);
  link.queueBytes = 200'000;  // a sixth of the bandwidth-delay product
  Streamed with(link, kOn, kOn), without(link, kOff, kOff);
  with.simulation.runFor(seconds(8));
  without.simulation.runFor(seconds(8));
  const auto dropped = [](const Streamed& one) {
    const auto counters = one.linkForth.edgeCounters();
    return static_cast<double>(counters.lostInQueue) / static_cast<double>(counters.offered);
  };
  EXPECT_LT(dropped(with), std::max(0.03, 1.5 * dropped(without)));
  EXPECT_GT(with.stream.deliveredBytes(), without.stream.deliveredBytes() * 8 / 10);
}

}  // namespace
}  // namespace gloo_bypass::sim
