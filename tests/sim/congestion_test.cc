// Congestion controllers and the pacer alone: endless flows over modelled links, in virtual time.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/sim/flow.h"
#include "tests/sim/settings.h"
#include "transport/core/congestion/bbr.h"
#include "transport/core/congestion/swift.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kGigabit = 1e9 / 8;
constexpr double kLongGigabit = kGigabit * kLongPathScale;

struct Outcome {
  double utilisation = 0;  // payload delivered, as a share of the link's capacity
  Duration meanQueueing{0};
  std::vector<double> shares;  // of each flow
};

// Flows over one link: `warmUp`, then `measured`.
Outcome runFlows(CongestionControl kind, int flows, const LinkModel& model, Duration warmUp, Duration measured,
                 Duration secondStartsAfter = Duration{0}) {
  Simulation simulation;
  Link link(simulation, model, 7);
  std::vector<std::unique_ptr<Flow>> all;
  for (int i = 0; i < flows; ++i) {
    all.push_back(std::make_unique<Flow>(simulation, link, model.delay,
                                         makeCongestionController(kind, SessionConfig{}, Flow::kDatagramBytes,
                                                                  static_cast<std::uint64_t>(i) * 12345 + 6)));
    Flow* const flow = all.back().get();
    flow->setHandshakeRtt(2 * model.delay);
    simulation.after(i * secondStartsAfter, [flow] { flow->start(); });
  }
  simulation.runFor(warmUp);
  std::vector<std::uint64_t> before;
  for (const auto& flow : all) before.push_back(flow->deliveredBytes());
  const LinkCounters start = link.counters();
  simulation.runFor(measured);
  Outcome outcome;
  double total = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    outcome.shares.push_back(static_cast<double>(all[i]->deliveredBytes() - before[i]));
    total += outcome.shares.back();
  }
  for (double& share : outcome.shares) share /= total;
  const double framing = static_cast<double>(Flow::kDatagramBytes) / (Flow::kDatagramBytes + kWireOverheadBytes);
  outcome.utilisation = total / (model.bytesPerSecond() * std::chrono::duration<double>(measured).count() * framing);
  const auto sent = static_cast<Duration::rep>(link.counters().offered - start.offered);
  outcome.meanQueueing = (link.counters().totalQueueing - start.totalQueueing) / std::max<Duration::rep>(sent, 1);
  return outcome;
}

LinkModel linkOf(double bytesPerSecond, Duration oneWay, double loss, double queueBdp) {
  LinkModel model;
  model.setBytesPerSecond(bytesPerSecond);
  model.delay = oneWay;
  model.loss = loss;
  const double bdp = bytesPerSecond * 2e-9 * static_cast<double>(oneWay.count());
  model.queueBytes = static_cast<std::size_t>(std::max(bdp * queueBdp, 20.0 * 1538));
  return model;
}

TEST(Pacer, Unpaced_ReleasesAtOnce) {
  Pacer pacer;
  const TimePoint now = Simulation::kStart;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pacer.mayReleaseAt(now));
    pacer.onSent(now, 1500);
  }
}

TEST(Pacer, Rate_IsKeptAfterTheBurst) {
  Pacer pacer;
  pacer.setRate(1e6, 1000);  // 1 ms a datagram, bursts of two
  TimePoint now = Simulation::kStart;
  int sent = 0;
  while (pacer.mayReleaseAt(now)) {
    pacer.onSent(now, 1000);
    ++sent;
  }
  EXPECT_EQ(sent, 2);
  for (; sent < 1000; ++sent) {
    now = std::max(now, pacer.releaseTime());
    pacer.onSent(now, 1000);
  }
  EXPECT_NEAR(std::chrono::duration<double>(now - Simulation::kStart).count(), 0.998, 0.001);
}

TEST(Pacer, LateTimer_CostsNoThroughputWithinTheBurst) {
  Pacer pacer;
  pacer.setRate(kGigabit, 1500);
  TimePoint now = Simulation::kStart;
  std::size_t bytes = 0;
  while (now < Simulation::kStart + seconds(1)) {
    while (pacer.mayReleaseAt(now)) {
      pacer.onSent(now, 1500);
      bytes += 1500;
    }
    now = pacer.wakeTime() + microseconds(200);  // a timer that coarse
  }
  EXPECT_NEAR(static_cast<double>(bytes) / kGigabit, 1.0, 0.01);
}

TEST(Pacer, WaitsForNothingElse_WokenForHalfABurstEachTime) {
  Pacer pacer;
  pacer.setRate(50e6 / 8, 1500);  // 4 datagrams a millisecond
  TimePoint now = Simulation::kStart;
  int wakes = 0;
  std::size_t bytes = 0;
  for (; now < Simulation::kStart + seconds(1); now = pacer.wakeTime(), ++wakes) {
    while (pacer.mayReleaseAt(now)) {
      pacer.onSent(now, 1500);
      bytes += 1500;
    }
  }
  EXPECT_NEAR(static_cast<double>(bytes) / (50e6 / 8), 1.0, 0.01);
  EXPECT_LE(wakes, 2100);
}

TEST(Pacer, Undo_GivesTheTimeBack) {
  Pacer pacer;
  pacer.setRate(1e6, 1000);
  const TimePoint now = Simulation::kStart;
  pacer.onSent(now, 1000);
  const TimePoint before = pacer.releaseTime();
  pacer.onSent(now, 1000);
  pacer.undo(1000);
  EXPECT_EQ(pacer.releaseTime(), before);
}

TEST(Pacer, FasterRate_ShortensTheWaitAtOnce) {
  Pacer pacer;
  pacer.setRate(1e4, 1000);
  const TimePoint now = Simulation::kStart;
  while (pacer.mayReleaseAt(now)) pacer.onSent(now, 1000);
  EXPECT_EQ(pacer.releaseTime() - now, milliseconds(100));
  pacer.setRate(1e6, 1000);
  EXPECT_LE(pacer.releaseTime() - now, milliseconds(1));
}

TEST(WindowedMaximum, OldRounds_AreForgotten) {
  WindowedMaximum<3> maximum;
  maximum.update(1, 10);
  maximum.update(2, 5);
  EXPECT_EQ(maximum.maximum(), 10);
  maximum.update(3, 4);
  EXPECT_EQ(maximum.maximum(), 10);
  maximum.update(4, 4);
  EXPECT_EQ(maximum.maximum(), 5);
  maximum.update(100, 1);
  EXPECT_EQ(maximum.maximum(), 1);
}

TEST(Factory, EveryKind_HasItsName) {
  const SessionConfig config;
  EXPECT_EQ(makeCongestionController(CongestionControl::kFixed, config, 1472, 1)->name(), "fixed");
  EXPECT_EQ(makeCongestionController(CongestionControl::kSwift, config, 1472, 1)->name(), "swift");
  EXPECT_EQ(makeCongestionController(CongestionControl::kBbr, config, 1472, 1)->name(), "bbr");
}

TEST(FixedWindow, LossAndTimeout_ChangeNothing) {
  SessionConfig config;
  config.fixedWindowBytes = 1 << 20;
  const auto controller = makeCongestionController(CongestionControl::kFixed, config, 1472, 1);
  AckSample sample;
  sample.lostBytes = 1 << 19;
  controller->onAck(sample);
  controller->onTimeout(Simulation::kStart);
  EXPECT_EQ(controller->windowBytes(), std::size_t{1} << 20);
  EXPECT_TRUE(std::isinf(controller->pacingRate()));
}

TEST(Bbr, LongPathWithLoss_UsesMostOfTheLink) {
  // 1 Gbit/s, 100 ms, 0.1 % loss; also 1 % and 5 %, and queues from a tenth of the bandwidth-delay product to twice it.
  for (const double loss : {0.001, 0.01, 0.05}) {
    for (const double queue : {0.1, 1.0, 2.0}) {
      const double rate = loss > 0.001 ? kLongGigabit / 5 : kLongGigabit;
      const Outcome outcome =
          runFlows(CongestionControl::kBbr, 1, linkOf(rate, milliseconds(50), loss, queue), seconds(3), seconds(12));
      EXPECT_GT(outcome.utilisation, 0.85 * (1 - loss)) << "loss " << loss << ", queue " << queue;
    }
  }
}

TEST(Bbr, HeavyLoss_KeepsGoing) {
  const Outcome outcome = runFlows(CongestionControl::kBbr, 1, linkOf(kLongGigabit / 10, milliseconds(50), 0.3, 1.0),
                                   seconds(3), seconds(20));
  EXPECT_GT(outcome.utilisation, 0.05);
}

TEST(Bbr, IntercontinentalPath_UsesMostOfTheLink) {
  const Outcome outcome = runFlows(CongestionControl::kBbr, 1, linkOf(kLongGigabit, milliseconds(150), 0.001, 1.0),
                                   seconds(6), seconds(20));
  EXPECT_GT(outcome.utilisation, 0.8);
}

TEST(Bbr, OneFlow_KeepsTheQueueBelowTheBandwidthDelayProduct) {
  const Outcome outcome =
      runFlows(CongestionControl::kBbr, 1, linkOf(kLongGigabit, milliseconds(20), 0, 4.0), seconds(3), seconds(12));
  EXPECT_LT(outcome.meanQueueing, milliseconds(10));  // a quarter of the round trip; the queue would hold 160 ms
  EXPECT_GT(outcome.utilisation, 0.9);
}

TEST(Bbr, TwoFlows_ShareOneLink) {
  const Outcome outcome = runFlows(CongestionControl::kBbr, 2, linkOf(kLongGigabit / 4, milliseconds(20), 0.0005, 1.5),
                                   seconds(15), seconds(20), seconds(2));
  EXPECT_GT(outcome.utilisation, 0.85);
  for (const double share : outcome.shares) EXPECT_GT(share, 0.25);
}

TEST(Bbr, ApplicationLimited_DoesNotForgetTheBandwidth) {
  Simulation simulation;
  Link link(simulation, linkOf(kLongGigabit, milliseconds(20), 0, 1.0), 7);
  auto controller = std::make_unique<Bbr>(Flow::kDatagramBytes, 1);
  const Bbr* const bbr = controller.get();
  Flow flow(simulation, link, milliseconds(20), std::move(controller));
  flow.start();
  simulation.runFor(seconds(2));
  const double full = bbr->bandwidth();
  EXPECT_GT(full, 0.9 * kLongGigabit * 0.95);
  flow.setOfferedRate(1);  // all but silent from now on
  simulation.runFor(seconds(4));
  EXPECT_GT(bbr->bandwidth(), 0.9 * full);
}

// As a rank that computes between two collectives: the queue is empty, and half a window would slow down what follows.
TEST(Bbr, MinimalRttIsOldAfterAPause_IsNoReasonToSendLess) {
  Bbr bbr(Flow::kDatagramBytes, 1);
  TimePoint now = Simulation::kStart;
  AckSample sample;
  const auto exchange = [&](Duration rtt) {
    bbr.onSent(now, Flow::kDatagramBytes, Flow::kDatagramBytes);
    now += rtt;
    sample.now = now;
    sample.rtt = sample.smoothedRtt = rtt;
    sample.ackedBytes = Flow::kDatagramBytes;
    sample.priorDeliveredBytes = sample.deliveredBytes;
    sample.deliveredBytes += sample.ackedBytes;
    sample.deliveryRateBytesPerSecond = kGigabit;
    bbr.onAck(sample);
  };
  for (int i = 0; i < 20; ++i) exchange(milliseconds(100));
  ASSERT_EQ(bbr.state(), Bbr::State::kProbeBandwidth);
  const std::size_t window = bbr.windowBytes();
  now += seconds(6);
  exchange(milliseconds(101));
  EXPECT_EQ(bbr.state(), Bbr::State::kProbeBandwidth);
  EXPECT_GE(bbr.windowBytes(), window);
  EXPECT_EQ(bbr.minRtt(), milliseconds(101));
  // What is in flight all the time may stand in a queue.
  for (int i = 0; i < 60; ++i) {
    bbr.onSent(now, Flow::kDatagramBytes, 2 * Flow::kDatagramBytes);
    now += milliseconds(100);
    sample.now = now;
    sample.rtt = milliseconds(102);
    bbr.onAck(sample);
  }
  EXPECT_EQ(bbr.state(), Bbr::State::kProbeRtt);
}

TEST(Bbr, MinimalRtt_FollowsALongerPath) {
  Simulation simulation;
  const LinkModel before = linkOf(kGigabit / 10, milliseconds(10), 0, 1.0);
  Link link(simulation, before, 7);
  auto controller = std::make_unique<Bbr>(Flow::kDatagramBytes, 1);
  const Bbr* const bbr = controller.get();
  Flow flow(simulation, link, milliseconds(10), std::move(controller));
  flow.start();
  simulation.runFor(seconds(3));
  EXPECT_NEAR(static_cast<double>(bbr->minRtt().count()), 20e6, 1e6);
  LinkModel after = before;
  after.delay = milliseconds(50);
  link.setModel(after);
  simulation.runFor(seconds(15));
  EXPECT_NEAR(static_cast<double>(bbr->minRtt().count()), 60e6, 3e6);
}

TEST(Swift, Rack_KeepsTheQueueShortAndTheLinkBusy) {
  const Outcome outcome = runFlows(CongestionControl::kSwift, 1, linkOf(10 * kGigabit, microseconds(50), 0, 20.0),
                                   milliseconds(100), milliseconds(200));
  EXPECT_LT(outcome.meanQueueing, microseconds(230));  // the target: half the round trip, and 160 us
  EXPECT_GT(outcome.utilisation, 0.9);
}

TEST(Swift, SlowLink_HasRoomForThreeBurstsAndNoMore) {
  const Outcome outcome = runFlows(CongestionControl::kSwift, 1, linkOf(kGigabit, microseconds(50), 0, 100.0),
                                   milliseconds(400), milliseconds(400));
  EXPECT_GT(outcome.meanQueueing, microseconds(1400));  // they take 1.57 ms
  EXPECT_LT(outcome.meanQueueing, microseconds(1800));
}

TEST(Swift, VerySlowLink_KeepsTheQueueBelowTwoMilliseconds) {
  const Outcome outcome = runFlows(CongestionControl::kSwift, 1, linkOf(kGigabit / 10, microseconds(50), 0, 1000.0),
                                   seconds(2), seconds(2));
  EXPECT_GT(outcome.utilisation, 0.9);
  EXPECT_LT(outcome.meanQueueing, microseconds(2200));
}

TEST(Swift, TwoFlows_ShareOneLink) {
  const Outcome outcome = runFlows(CongestionControl::kSwift, 2, linkOf(10 * kGigabit, microseconds(50), 0, 20.0),
                                   milliseconds(300), milliseconds(400), milliseconds(20));
  EXPECT_GT(outcome.utilisation, 0.9);
  for (const double share : outcome.shares) EXPECT_GT(share, 0.3);
}

TEST(Swift, ManyFlows_KeepTheQueueBounded) {
  const Outcome outcome = runFlows(CongestionControl::kSwift, 16, linkOf(10 * kGigabit, microseconds(50), 0, 20.0),
                                   milliseconds(200), milliseconds(200), milliseconds(1));
  EXPECT_LT(outcome.meanQueueing, milliseconds(2));  // three bursts of 64 KiB of each flow take 2.5 ms
  EXPECT_GT(outcome.utilisation, 0.9);
  for (const double share : outcome.shares) EXPECT_GT(share, 0.05);
}

AckSample swiftSample(TimePoint now, Duration rtt, std::uint64_t delivered, std::uint64_t prior) {
  AckSample sample;
  sample.now = now;
  sample.ackedBytes = Flow::kDatagramBytes;
  sample.rtt = sample.smoothedRtt = rtt;
  sample.minRtt = microseconds(100);
  sample.deliveredBytes = delivered;
  sample.priorDeliveredBytes = prior;
  return sample;
}

TEST(Swift, DelayGoneAfterADecrease_WasAWaitAndIsUndone) {
  Swift swift(Flow::kDatagramBytes);
  const TimePoint start = Simulation::kStart;
  swift.onAck(swiftSample(start, microseconds(100), 1'000, 0));
  const std::size_t before = swift.windowBytes();
  const Duration target = swift.targetDelay();
  swift.onAck(swiftSample(start + milliseconds(4), milliseconds(3), 2'000, 0));
  EXPECT_LE(swift.windowBytes(), before / 2 + 1);
  // Was under way at the decrease, so it proves nothing.
  swift.onAck(swiftSample(start + milliseconds(4), microseconds(100), 3'000, 1'000));
  EXPECT_LT(swift.windowBytes(), before);
  swift.onAck(swiftSample(start + milliseconds(5), microseconds(100), 4'000, 2'000));
  EXPECT_GE(swift.windowBytes(), before);
  EXPECT_GT(swift.targetDelay(), target);  // the host gets a higher target
  for (int i = 0; i < 20; ++i) swift.onAck(swiftSample(start + milliseconds(100) * i, microseconds(100), 5'000, 4'000));
  EXPECT_LE(swift.targetDelay(), target);  // and loses it again
}

TEST(Swift, DelayShrinksAsTheWindow_IsAQueueAndStaysDecreased) {
  Swift swift(Flow::kDatagramBytes);
  const TimePoint start = Simulation::kStart;
  swift.onAck(swiftSample(start, microseconds(100), 1'000, 0));
  const std::size_t before = swift.windowBytes();
  swift.onAck(swiftSample(start + milliseconds(4), microseconds(1200), 2'000, 0));
  swift.onAck(swiftSample(start + milliseconds(5), microseconds(600), 3'000, 2'000));
  swift.onAck(swiftSample(start + milliseconds(6), microseconds(340), 4'000, 3'000));
  EXPECT_LE(swift.windowBytes(), before / 2);
}

TEST(Swift, LongerPath_IsLearntAtTheFloor) {
  Simulation simulation;
  const LinkModel before = linkOf(40 * kGigabit, microseconds(50), 0, 20.0);
  Link link(simulation, before, 7);
  auto controller = std::make_unique<Swift>(Flow::kDatagramBytes);
  const Swift* const swift = controller.get();
  Flow flow(simulation, link, microseconds(50), std::move(controller));
  flow.start();
  simulation.runFor(milliseconds(100));
  EXPECT_LT(swift->targetDelay(), microseconds(500));
  LinkModel after = before;
  after.delay = milliseconds(10);
  link.setModel(after);
  simulation.runFor(seconds(2));
  EXPECT_GT(swift->targetDelay(), milliseconds(15));
  EXPECT_GT(swift->pathRtt(milliseconds(11)), milliseconds(9));
}

TEST(Swift, OwnQueue_IsNoPartOfThePath) {
  Simulation simulation;
  Link link(simulation, linkOf(kGigabit / 10, microseconds(50), 0, 1000.0), 7);
  auto controller = std::make_unique<Swift>(Flow::kDatagramBytes);
  const Swift* const swift = controller.get();
  EXPECT_EQ(swift->pathRtt(milliseconds(3)), milliseconds(3));
  Flow flow(simulation, link, microseconds(50), std::move(controller));
  flow.start();
  simulation.runFor(seconds(40));
  EXPECT_LT(swift->pathRtt(milliseconds(3)), microseconds(400));  // a datagram alone takes 123 us there
}

// A port with less room than swift would take: it lives with losses, as others do.
TEST(Swift, ShortQueue_KeepsTheLinkBusy) {
  Simulation simulation;
  LinkModel model = linkOf(kGigabit, microseconds(50), 0, 1.0);
  model.queueBytes = 128 * 1024;
  Link link(simulation, model, 7);
  Flow flow(simulation, link, microseconds(50), std::make_unique<Swift>(Flow::kDatagramBytes));
  flow.start();
  simulation.runFor(milliseconds(500));
  const std::uint64_t delivered = flow.deliveredBytes();
  simulation.runFor(seconds(5));
  EXPECT_GT(static_cast<double>(flow.deliveredBytes() - delivered), 0.9 * 5 * kGigabit);
}

}  // namespace
}  // namespace gloo_bypass::sim
