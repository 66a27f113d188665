// Failures: peers that vanish, stop, resume; closes that cross; messages that are never received.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/pair.h"
#include "tests/sim/settings.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

LinkModel link(Duration oneWay, double loss) {
  LinkModel model;
  model.delay = oneWay;
  model.loss = loss;
  model.setBytesPerSecond(1e9 / 8);
  return model;
}

TrafficModel someTraffic(Duration spread) {
  TrafficModel traffic;
  traffic.messages = 30;
  traffic.totalBytes = 1 << 20;
  traffic.maxMessageBytes = 256 << 10;
  traffic.spread = spread;
  return traffic;
}

bool over(SessionState state) {
  return state == SessionState::kFailed || state == SessionState::kClosed || state == SessionState::kPeerClosed;
}

// A pair with traffic in both directions.
struct BusyPair {
  BusyPair(const PathModel& path, const SessionConfig& config, const TrafficModel& traffic, std::uint64_t seed)
      : pair(path, config, seed),
        forth(pair.simulation, pair.a, pair.b, traffic, seed * 2 + 1),
        back(pair.simulation, pair.b, pair.a, traffic, seed * 2 + 2) {
    pair.observe(&forth, &back);
  }
  void start() {
    forth.start();
    back.start();
    pair.connect();
  }
  std::string faults() const {
    std::string text;
    for (const std::string& fault : forth.faults()) text += "\n  * forth: " + fault;
    for (const std::string& fault : back.faults()) text += "\n  * back: " + fault;
    return text;
  }

  Pair pair;
  Conversation forth, back;
};

TEST(PeerVanishes, AtAnyMoment_TheOtherFailsWithinThePeerTimeout) {
  forEachSeed(300, 1, [](std::uint64_t seed) {
    SCOPED_TRACE("GLOO_BYPASS_SIM_SEED=" + std::to_string(seed));
    Random random(seed);
    const Duration oneWay(static_cast<Duration::rep>(random.logUniform(5e3, 100e6)));
    static constexpr double kLoss[] = {0, 0.01, 0.1};
    SessionConfig config;
    config.peerTimeout = seconds(5 + static_cast<int>(random.below(10)));
    config.keepAlive = milliseconds(500);
    BusyPair busy(PathModel::symmetric(link(oneWay, random.pick(kLoss)), 1472), config,
                  someTraffic(4 * oneWay + milliseconds(5)), seed);
    ASSERT_TRUE(busy.pair.connectWithin(seconds(30)));
    busy.forth.start();
    busy.back.start();
    busy.pair.simulation.runFor(
        Duration(static_cast<Duration::rep>(random.uniform() * 10 * static_cast<double>(oneWay.count()))));
    busy.pair.b.vanish();
    const TimePoint vanished = busy.pair.simulation.now();
    const Session& survivor = busy.pair.a.session();
    ASSERT_TRUE(busy.pair.simulation.runUntil(vanished + config.peerTimeout + 2 * oneWay + milliseconds(100),
                                              [&] { return survivor.state() == SessionState::kFailed; }))
        << "state " << static_cast<int>(survivor.state());
    EXPECT_EQ(survivor.error().code, ErrorCode::kPeerVanished);
    // No sooner either: a peer that is only slow must not be taken for dead.
    EXPECT_GE(busy.pair.simulation.now() - vanished + 2 * oneWay, config.peerTimeout - config.keepAlive);
  });
}

TEST(PeerVanishes, BeforeItAnswers_ConnectTimesOut) {
  SessionConfig config;
  config.connectTimeout = seconds(3);
  Pair pair(PathModel::symmetric(link(milliseconds(1), 0), 1472), config, 1);
  pair.b.vanish();
  pair.connect();
  const TimePoint start = pair.simulation.now();
  ASSERT_TRUE(
      pair.simulation.runUntil(start + seconds(4), [&] { return pair.a.session().state() == SessionState::kFailed; }));
  EXPECT_EQ(pair.a.session().error().code, ErrorCode::kTimedOut);
  EXPECT_GE(pair.simulation.now() - start, seconds(3));
}

TEST(PeerStops, AndResumesInTime_NothingIsLost) {
  forEachSeed(300, 1, [](std::uint64_t seed) {
    SCOPED_TRACE("GLOO_BYPASS_SIM_SEED=" + std::to_string(seed));
    Random random(seed);
    const Duration oneWay(static_cast<Duration::rep>(random.logUniform(5e3, 50e6)));
    SessionConfig config;
    config.peerTimeout = seconds(10);
    BusyPair busy(PathModel::symmetric(link(oneWay, random.chance(0.5) ? 0.02 : 0), 1472), config,
                  someTraffic(10 * oneWay + milliseconds(1)), seed);
    busy.start();
    for (int i = 0; i < 3; ++i) {
      Host& host = random.chance(0.5) ? busy.pair.a : busy.pair.b;
      busy.pair.simulation.runFor(
          Duration(static_cast<Duration::rep>(random.uniform() * 4 * static_cast<double>(oneWay.count()))));
      host.stop();
      busy.pair.simulation.runFor(Duration(static_cast<Duration::rep>(random.logUniform(1e4, 8e9))));
      host.resume();
    }
    ASSERT_TRUE(busy.pair.simulation.runUntil(busy.pair.simulation.now() + seconds(120),
                                              [&] { return busy.forth.done() && busy.back.done(); }))
        << busy.forth.progress() << "; " << busy.back.progress() << busy.faults() << "; states "
        << static_cast<int>(busy.pair.a.session().state()) << " and "
        << static_cast<int>(busy.pair.b.session().state());
    busy.forth.checkBuffers();
    busy.back.checkBuffers();
    EXPECT_EQ(busy.faults(), "");
  });
}

// A suspend of the whole job, by a scheduler or a laptop's lid.
TEST(BothStop, ForLongerThanThePeerTimeout_AskBeforeTheyGiveUp) {
  forEachSeed(300, 1, [](std::uint64_t seed) {
    SCOPED_TRACE("GLOO_BYPASS_SIM_SEED=" + std::to_string(seed));
    Random random(seed);
    const Duration oneWay(static_cast<Duration::rep>(random.logUniform(5e3, 50e6)));
    SessionConfig config;
    config.peerTimeout = seconds(3);
    config.keepAlive = seconds(1);
    BusyPair busy(PathModel::symmetric(link(oneWay, random.chance(0.5) ? 0.02 : 0), 1472), config,
                  someTraffic(10 * oneWay + milliseconds(1)), seed);
    Simulation& simulation = busy.pair.simulation;
    ASSERT_TRUE(busy.pair.connectWithin(seconds(30)));
    const bool idle = random.chance(0.5);
    if (!idle) busy.start();
    simulation.runFor(Duration(static_cast<Duration::rep>(random.uniform() * 8 * static_cast<double>(oneWay.count()))));
    busy.pair.a.stop();
    busy.pair.b.stop();
    simulation.runFor(Duration(static_cast<Duration::rep>(random.logUniform(3e9, 1e13))));
    busy.pair.a.resume();
    simulation.runFor(Duration(static_cast<Duration::rep>(random.uniform() * 1e9)));
    busy.pair.b.resume();
    simulation.runFor(seconds(10));
    EXPECT_EQ(busy.pair.a.session().state(), SessionState::kEstablished) << busy.pair.a.session().error().message;
    EXPECT_EQ(busy.pair.b.session().state(), SessionState::kEstablished) << busy.pair.b.session().error().message;
    if (idle) return;
    ASSERT_TRUE(
        simulation.runUntil(simulation.now() + seconds(120), [&] { return busy.forth.done() && busy.back.done(); }))
        << busy.forth.progress() << "; " << busy.back.progress();
    EXPECT_EQ(busy.faults(), "");
  });
}

TEST(BothStop, AndOneVanishes_TheOtherFailsWithinThePeerTimeoutOfItsResume) {
  SessionConfig config;
  config.peerTimeout = seconds(3);
  config.keepAlive = seconds(1);
  Pair pair(PathModel::symmetric(link(milliseconds(1), 0), 1472), config, 1);
  ASSERT_TRUE(pair.connectWithin(seconds(5)));
  pair.a.stop();
  pair.b.vanish();
  pair.simulation.runFor(seconds(60));
  pair.a.resume();
  const TimePoint resumed = pair.simulation.now();
  const Session& survivor = pair.a.session();
  ASSERT_TRUE(
      pair.simulation.runUntil(resumed + seconds(4), [&] { return survivor.state() == SessionState::kFailed; }));
  EXPECT_EQ(survivor.error().code, ErrorCode::kPeerVanished);
  EXPECT_GE(pair.simulation.now() - resumed, config.peerTimeout);
}

TEST(IdlePair, ForAnHour_StaysConnected) {
  for (const double loss : {0.0, 0.2}) {
    Pair pair(PathModel::symmetric(link(milliseconds(20), loss), 1472), SessionConfig{}, 3);
    ASSERT_TRUE(pair.connectWithin(seconds(30)));
    pair.simulation.runFor(std::chrono::hours(1));
    EXPECT_EQ(pair.a.session().state(), SessionState::kEstablished);
    EXPECT_EQ(pair.b.session().state(), SessionState::kEstablished);
    // Keep-alive, not chatter.
    EXPECT_LT(pair.a.session().counters().packetsSent, 4u * 3600);
  }
}

TEST(LosslessIdlePair, ForAnHour_IsSilent) {
  SessionConfig config;
  config.losslessLink = true;
  Pair pair(PathModel::symmetric(link(microseconds(5), 0), 1472), config, 3);
  ASSERT_TRUE(pair.connectWithin(seconds(5)));
  pair.simulation.runFor(seconds(10));
  const std::uint64_t before = pair.a.session().counters().packetsSent;
  pair.simulation.runFor(std::chrono::hours(1));
  EXPECT_EQ(pair.a.session().counters().packetsSent, before);
}

TEST(Close, WithMessagesUnderWay_DeliversThemFirst) {
  forEachSeed(300, 1, [](std::uint64_t seed) {
    SCOPED_TRACE("GLOO_BYPASS_SIM_SEED=" + std::to_string(seed));
    Random random(seed);
    const Duration oneWay(static_cast<Duration::rep>(random.logUniform(5e3, 50e6)));
    static constexpr double kLoss[] = {0, 0.01, 0.1};
    SessionConfig config;
    Pair pair(PathModel::symmetric(link(oneWay, random.pick(kLoss)), 1472), config, seed);
    ASSERT_TRUE(pair.connectWithin(seconds(60)));
    TrafficModel traffic = someTraffic(Duration{0});
    traffic.withdrawn = false;
    traffic.announced = false;
    Conversation forth(pair.simulation, pair.a, pair.b, traffic, seed);
    // Completions do not count as events for a closed session.
    pair.b.setObserver([&](const SessionEvent& event) { forth.onReceiverEvent(event); });
    forth.start();
    pair.simulation.runFor(Duration{0});  // everything is posted at once
    pair.a.operate([](Session& session, TimePoint now) { session.close(now, false); });
    ASSERT_TRUE(
        pair.simulation.runUntil(pair.simulation.now() + seconds(60), [&] { return over(pair.b.session().state()); }));
    EXPECT_EQ(pair.b.session().state(), SessionState::kPeerClosed);
    EXPECT_TRUE(forth.allReceived()) << forth.progress();
    for (const std::string& fault : forth.faults()) ADD_FAILURE() << fault;
  });
}

TEST(CloseAndAbort, InAnyOrderAtAnyTime_BothSidesEnd) {
  forEachSeed(600, 1, [](std::uint64_t seed) {
    SCOPED_TRACE("GLOO_BYPASS_SIM_SEED=" + std::to_string(seed));
    Random random(seed);
    const Duration oneWay(static_cast<Duration::rep>(random.logUniform(5e3, 50e6)));
    static constexpr double kLoss[] = {0, 0.01, 0.2};
    SessionConfig config;
    config.peerTimeout = seconds(20);
    config.connectTimeout = seconds(10);
    BusyPair busy(PathModel::symmetric(link(oneWay, random.pick(kLoss)), 1472), config, someTraffic(6 * oneWay), seed);
    busy.start();
    Simulation& simulation = busy.pair.simulation;
    bool closed[2] = {};
    for (int side = 0; side < 2; ++side) {
      Host& host = side == 0 ? busy.pair.a : busy.pair.b;
      const bool abort = random.chance(0.4);
      const auto at = static_cast<Duration::rep>(random.uniform() * 12 * static_cast<double>(oneWay.count()));
      simulation.after(Duration(at), [&host, &closed, side, abort] {
        host.operate([abort](Session& session, TimePoint now) { session.close(now, abort); });
        closed[side] = true;
      });
    }
    ASSERT_TRUE(simulation.runUntil(
        simulation.now() + seconds(60),
        [&] { return closed[0] && closed[1] && busy.pair.a.session().drained() && busy.pair.b.session().drained(); }))
        << "states " << static_cast<int>(busy.pair.a.session().state()) << " and "
        << static_cast<int>(busy.pair.b.session().state()) << ", next wake of a in "
        << (busy.pair.a.nextWake() - simulation.now()).count() << " ns, of b in "
        << (busy.pair.b.nextWake() - simulation.now()).count() << " ns, stuck " << simulation.stuck();
    EXPECT_FALSE(simulation.stuck());
    EXPECT_EQ(busy.pair.a.session().state(), SessionState::kClosed);
    EXPECT_EQ(busy.pair.b.session().state(), SessionState::kClosed);
  });
}

// It would answer whatever the peer repeats, and acknowledge nothing, for as long as the close lingers. For some round
// trips it only says that it has ended.
TEST(Abort, AfterACloseThatLingers_EndsSoon) {
  Pair pair(PathModel::symmetric(link(milliseconds(1), 0), 1472), SessionConfig{}, 1);
  ASSERT_TRUE(pair.connectWithin(seconds(5)));
  LinkModel cut = link(milliseconds(1), 1);
  pair.linkForth.setModel(cut);
  const std::vector<std::byte> data(10'000);
  pair.a.operate([&](Session& session, TimePoint now) {
    ASSERT_TRUE(session.postSend({1, {}, data.data(), data.size(), 0}).ok());
    session.close(now, false);
  });
  pair.simulation.runFor(milliseconds(10));
  EXPECT_FALSE(pair.a.session().drained());
  pair.a.operate([](Session& session, TimePoint now) { session.close(now, true); });
  pair.simulation.runFor(milliseconds(100));
  EXPECT_TRUE(pair.a.session().drained());
}

TEST(Abort, IsSeenAsFailureByThePeer) {
  Pair pair(PathModel::symmetric(link(milliseconds(1), 0), 1472), SessionConfig{}, 1);
  ASSERT_TRUE(pair.connectWithin(seconds(5)));
  pair.a.operate([](Session& session, TimePoint now) { session.close(now, true); });
  EXPECT_TRUE(pair.simulation.runUntil(pair.simulation.now() + milliseconds(10),
                                       [&] { return pair.b.session().state() == SessionState::kFailed; }));
}

// A receiver that takes its messages in the opposite order of keys: unreceived messages must not block the rest,
// however many there are.
class UnreceivedMessages : public testing::TestWithParam<std::pair<Duration, bool>> {};

TEST_P(UnreceivedMessages, BeyondEveryBuffer_OtherKeysStillFlow) {
  const auto [oneWay, lossless] = GetParam();
  SessionConfig config;
  config.losslessLink = lossless;
  config.shortPathEagerBytes = 64 << 10;
  config.maxBufferBytes = 256 << 10;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{3000}, std::size_t{100'000}}) {
    SCOPED_TRACE(bytes);
    Pair pair(PathModel::symmetric(link(oneWay, lossless ? 0 : 0.01), 1472), config, 5);
    constexpr std::size_t kUnreceived = 400;
    std::vector<std::byte> data(bytes, std::byte{7});
    std::vector<std::vector<std::byte>> received(kUnreceived + 1, std::vector<std::byte>(bytes));
    std::size_t completions = 0;
    pair.b.setObserver([&](const SessionEvent& event) {
      if (event.type == SessionEvent::Type::kReceiveComplete) ++completions;
    });
    ASSERT_TRUE(pair.connectWithin(seconds(10)));
    for (std::size_t i = 0; i <= kUnreceived; ++i) {
      pair.a.operate([&](Session& session, TimePoint) {
        const MessageKey key{MessageKind::kUnbound, i};
        ASSERT_TRUE(session.postSend({i, key, data.data(), bytes, 0}).ok());
      });
    }
    const auto receive = [&](std::size_t i) {
      pair.b.operate([&](Session& session, TimePoint) {
        const MessageKey key{MessageKind::kUnbound, i};
        ASSERT_TRUE(session.postReceive({i, key, received[i].data(), bytes, false}).ok());
      });
    };
    receive(kUnreceived);
    ASSERT_TRUE(pair.simulation.runUntil(pair.simulation.now() + seconds(30), [&] { return completions == 1; }));
    for (std::size_t i = kUnreceived; i-- > 0;) receive(i);
    ASSERT_TRUE(
        pair.simulation.runUntil(pair.simulation.now() + seconds(60), [&] { return completions == kUnreceived + 1; }));
    for (const auto& buffer : received) EXPECT_EQ(buffer, data);
    EXPECT_LE(pair.b.maxMemoryBytes(), memoryBound(config, oneWay >= milliseconds(1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, UnreceivedMessages,
                         testing::Values(std::pair{Duration(microseconds(5)), true},
                                         std::pair{Duration(microseconds(50)), false},
                                         std::pair{Duration(milliseconds(20)), false}),
                         [](const auto& info) {
                           return std::string(info.param.second ? "Lossless" : "Lossy") +
                                  std::to_string(info.param.first.count() / 1000) + "us";
                         });

TEST(ForeignDatagrams, AreCountedAndDropped) {
  SessionConfig config;
  BusyPair busy(PathModel::symmetric(link(microseconds(50), 0), 1472), config, someTraffic(milliseconds(1)), 9);
  busy.start();
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    busy.pair.simulation.after(microseconds(i), [&busy, &random] {
      std::vector<std::byte> junk(random.below(1472));
      for (std::byte& each : junk) each = static_cast<std::byte>(random.next());
      busy.pair.a.onDatagram(busy.pair.simulation.now(), junk);
      busy.pair.b.onDatagram(busy.pair.simulation.now(), junk);
    });
  }
  ASSERT_TRUE(busy.pair.simulation.runUntil(busy.pair.simulation.now() + seconds(10),
                                            [&] { return busy.forth.done() && busy.back.done(); }));
  busy.pair.simulation.runFor(seconds(1));
  EXPECT_EQ(busy.faults(), "");
  EXPECT_EQ(busy.pair.a.session().state(), SessionState::kEstablished);
}

}  // namespace
}  // namespace gloo_bypass::sim
