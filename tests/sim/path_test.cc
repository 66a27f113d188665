// How well sessions use a path: utilisation, fairness, queues. Virtual seconds, so that the machine's speed has no
// influence.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/sim/pair.h"
#include "tests/sim/settings.h"
#include "tests/sim/stream.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kGigabit = 1e9 / 8;
constexpr double kLongGigabit = kGigabit * kLongPathScale;

LinkModel linkOf(double bytesPerSecond, Duration oneWay, double loss, double queueBdp) {
  LinkModel model;
  model.setBytesPerSecond(bytesPerSecond);
  model.delay = oneWay;
  model.loss = loss;
  const double bdp = bytesPerSecond * 2e-9 * static_cast<double>(oneWay.count());
  model.queueBytes = static_cast<std::size_t>(std::max(bdp * queueBdp, 300e3));
  return model;
}

struct Measured {
  double utilisation = 0;
  double share = 0;  // of the first stream
  Duration meanQueueing{0};
  std::size_t maxMemoryBytes = 0;
};

// Sessions that share the bottleneck in the forward direction, one stream each.
Measured measure(const LinkModel& model, const SessionConfig& config, int sessions, std::size_t messageBytes,
                 std::size_t maxDatagramBytes, Duration warmUp, Duration duration) {
  Simulation simulation;
  Link forth(simulation, model, 1), back(simulation, model, 2);
  std::vector<std::unique_ptr<Host>> hosts;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < sessions; ++i) {
    const auto id = static_cast<std::uint64_t>(i) * 2 + 100;
    hosts.push_back(std::make_unique<Host>(simulation, config, id, Random(id).next()));
    hosts.push_back(std::make_unique<Host>(simulation, config, id + 1, Random(id + 1).next()));
    Host& a = *hosts[hosts.size() - 2];
    Host& b = *hosts.back();
    a.attach(forth, b);
    b.attach(back, a);
    a.connect(b, maxDatagramBytes);
    b.connect(a, maxDatagramBytes);
    const std::size_t bdp =
        static_cast<std::size_t>(model.bytesPerSecond() * 2e-9 * static_cast<double>(model.delay.count()));
    streams.push_back(std::make_unique<Stream>(a, b, messageBytes, 4 + 4 * bdp / messageBytes));
  }
  simulation.runFor(4 * model.delay + milliseconds(500));
  for (auto& stream : streams) stream->start();
  simulation.runFor(warmUp);
  std::vector<std::uint64_t> before;
  for (auto& stream : streams) before.push_back(stream->deliveredBytes());
  const LinkCounters start = forth.counters();
  simulation.runFor(duration);
  Measured measured;
  double total = 0;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const auto bytes = static_cast<double>(streams[i]->deliveredBytes() - before[i]);
    if (i == 0) measured.share = bytes;
    total += bytes;
  }
  measured.share /= total;
  measured.utilisation = total / (model.bytesPerSecond() * std::chrono::duration<double>(duration).count());
  measured.meanQueueing =
      (forth.counters().totalQueueing - start.totalQueueing) /
      static_cast<Duration::rep>(std::max<std::uint64_t>(1, forth.counters().offered - start.offered));
  for (const auto& host : hosts) measured.maxMemoryBytes = std::max(measured.maxMemoryBytes, host->maxMemoryBytes());
  return measured;
}

class LongPath : public testing::TestWithParam<CongestionControl> {};

// The specified figure: 1 Gbit/s, 100 ms, 0.1 % loss, above 80 %, of goodput against the raw rate.
TEST_P(LongPath, GigabitHundredMillisecondsLossy_IsUsedAboveEightyPercent) {
  SessionConfig config;
  config.congestionControl = GetParam();
  std::vector<std::size_t> datagrams = {8972};
  if (GetParam() == CongestionControl::kAuto) datagrams.push_back(1472);
  for (const std::size_t datagram : datagrams) {
    const Measured measured = measure(linkOf(kLongGigabit, milliseconds(50), 0.001, 1.0), config, 1, 1 << 20, datagram,
                                      seconds(4), seconds(10));
    EXPECT_GT(measured.utilisation, 0.8) << "datagrams of " << datagram;
    EXPECT_LE(measured.maxMemoryBytes, memoryBound(config, true));
    RecordProperty("utilisation", std::to_string(measured.utilisation));
  }
}

INSTANTIATE_TEST_SUITE_P(Controllers, LongPath, testing::Values(CongestionControl::kAuto, CongestionControl::kBbr),
                         [](const auto& info) { return info.param == CongestionControl::kAuto ? "Auto" : "Bbr"; });

// At this rate under sanitizers too: on slower paths blocks are shorter, and need up to a quarter of the rate for
// repair frames.
TEST(LongPathLoss, OnePercent_StillCarriesMost) {
  const Measured measured = measure(linkOf(kGigabit / 4, milliseconds(50), 0.01, 1.0), SessionConfig{}, 1, 1 << 20,
                                    1472, seconds(4), seconds(8));
  EXPECT_GT(measured.utilisation, 0.75);
}

TEST(LongPathShortQueue, TenthOfTheBandwidthDelayProduct_StillCarriesMost) {
  const Measured measured = measure(linkOf(kLongGigabit / 4, milliseconds(50), 0.0001, 0.1), SessionConfig{}, 1,
                                    1 << 20, 1472, seconds(4), seconds(8));
  EXPECT_GT(measured.utilisation, 0.75);
}

TEST(IntercontinentalPath, ThreeHundredMilliseconds_CarriesMost) {
  const Measured measured = measure(linkOf(kLongGigabit / 4, milliseconds(150), 0.001, 1.0), SessionConfig{}, 1,
                                    1 << 20, 1472, seconds(8), seconds(12));
  EXPECT_GT(measured.utilisation, 0.75);
}

TEST(Fairness, TwoBbrSessions_ShareALongPath) {
  const Measured measured = measure(linkOf(kLongGigabit / 10, milliseconds(20), 0.0001, 1.5), SessionConfig{}, 2,
                                    1 << 20, 1472, seconds(15), seconds(20));
  EXPECT_GT(measured.utilisation, 0.8);
  EXPECT_GT(measured.share, 0.25);
  EXPECT_LT(measured.share, 0.75);
}

TEST(Fairness, TwoSwiftSessions_ShareARackLink) {
  const Measured measured = measure(linkOf(10 * kGigabit, microseconds(50), 0, 10), SessionConfig{}, 2, 1 << 20, 8972,
                                    milliseconds(300), milliseconds(300));
  EXPECT_GT(measured.utilisation, 0.85);
  EXPECT_GT(measured.share, 0.3);
  EXPECT_LT(measured.share, 0.7);
}

// The queue that swift keeps is longer there than the round trip from which on a path is BBR's; BBR would drain it each
// ten seconds, with a window of some datagrams.
TEST(Rack, SlowLinkBusyForLong_StaysWithSwift) {
  LinkModel link = linkOf(kGigabit / 5, microseconds(50), 0, 1.0);
  link.queueBytes = 1 << 20;
  Pair pair(PathModel::symmetric(link, 1472), SessionConfig{}, 1);
  ASSERT_TRUE(pair.connectWithin(seconds(1)));
  Stream stream(pair.a, pair.b, 1 << 20, 4);
  stream.start();
  pair.simulation.runFor(seconds(15));
  std::uint64_t least = pair.a.session().path().congestionWindowBytes;
  for (int i = 0; i < 2000; ++i) {
    pair.simulation.runFor(milliseconds(10));
    least = std::min(least, pair.a.session().path().congestionWindowBytes);
  }
  EXPECT_GT(least, 30'000u);
}

// Streams both ways, of which one has begun alone: the queue of the one is on the way of the other's acknowledgements.
TEST(Rack, SlowLinkBothWays_BothAreFilled) {
  LinkModel link = linkOf(kGigabit / 10, microseconds(50), 0, 1.0);
  link.queueBytes = 1 << 20;
  Pair pair(PathModel::symmetric(link, 1472), SessionConfig{}, 1);
  ASSERT_TRUE(pair.connectWithin(seconds(1)));
  TwoWayStream streams(pair.a, pair.b, 1 << 20, 4);
  streams.start(0);
  pair.simulation.runFor(seconds(2));
  streams.start(1);
  pair.simulation.runFor(seconds(2));
  const auto before = streams.deliveredBytes();
  pair.simulation.runFor(seconds(8));
  for (const std::size_t way : {0u, 1u}) {
    const auto bytes = static_cast<double>(streams.deliveredBytes()[way] - before[way]);
    EXPECT_GT(bytes, 0.85 * 8 * kGigabit / 10) << "way " << way;
  }
}

TEST(Rack, HundredMicroseconds_SwiftKeepsTheQueueShort) {
  for (const std::size_t datagram : {std::size_t{1472}, std::size_t{8972}}) {
    const Measured measured = measure(linkOf(10 * kGigabit, microseconds(50), 0, 20), SessionConfig{}, 1, 4 << 20,
                                      datagram, milliseconds(200), milliseconds(200));
    EXPECT_GT(measured.utilisation, 0.85) << "datagrams of " << datagram;
    EXPECT_LT(measured.meanQueueing, microseconds(220)) << "datagrams of " << datagram;
    EXPECT_LE(measured.maxMemoryBytes, std::size_t{32} << 20);
  }
}

TEST(MemoryLink, LargeMessages_FillIt) {
  LinkModel link;
  link.setBytesPerSecond(10e9);
  link.delay = microseconds(1);
  link.queueBytes = 32 * 32 * 1024;
  link.backPressure = true;
  SessionConfig config;
  config.losslessLink = true;
  const Measured measured = measure(link, config, 1, 1 << 20, 32 * 1024, milliseconds(20), milliseconds(100));
  EXPECT_GT(measured.utilisation, 0.95);
  EXPECT_LE(measured.maxMemoryBytes, std::size_t{32} << 20);
}

// The round trip, not a timer, limits the throughput of requests and answers on an idle rack path.
TEST(Rack, PingPong_CostsRoundTrips) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{20'000}}) {
    LinkModel model = linkOf(10 * kGigabit, microseconds(50), 0, 20);
    Pair pair(PathModel::symmetric(model, 1472), SessionConfig{}, 1);
    ASSERT_TRUE(pair.connectWithin(seconds(1)));
    pair.simulation.runFor(milliseconds(100));
    std::vector<std::byte> data(bytes), sink(bytes);
    const MessageKey key{MessageKind::kUnbound, 1};
    int exchanges = 0;
    std::uint64_t token = 0;
    const auto send = [&](Host& host) {
      host.operate([&](Session& session, TimePoint) {
        ASSERT_TRUE(session.postReceive({token, key, sink.data(), bytes, false}).ok());
        ASSERT_TRUE(session.postSend({token++, key, data.data(), bytes, 0}).ok());
      });
    };
    pair.b.operate([&](Session& session, TimePoint) {
      ASSERT_TRUE(session.postReceive({token++, key, sink.data(), bytes, false}).ok());
    });
    pair.b.setObserver([&](const SessionEvent& event) {
      if (event.type == SessionEvent::Type::kReceiveComplete) send(pair.b);
    });
    pair.a.setObserver([&](const SessionEvent& event) {
      if (event.type != SessionEvent::Type::kReceiveComplete) return;
      ++exchanges;
      send(pair.a);
    });
    const TimePoint start = pair.simulation.now();
    send(pair.a);
    ASSERT_TRUE(pair.simulation.runUntil(start + seconds(1), [&] { return exchanges == 100; }));
    const Duration each = (pair.simulation.now() - start) / 100;
    EXPECT_LT(each, microseconds(160)) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace gloo_bypass::sim
