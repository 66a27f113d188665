// One session over several paths: what its rails add, on any kind of path, and that nothing is lost or mixed up.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/sim/settings.h"
#include "tests/sim/stream.h"
#include "tools/simulation/core/conversation.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kGigabit = 1e9 / 8;
constexpr std::size_t kDatagramBytes = 1472;

LinkModel linkOf(double bytesPerSecond, Duration oneWay) {
  LinkModel model;
  model.setBytesPerSecond(bytesPerSecond);
  model.delay = oneWay;
  model.queueBytes = 512 << 10;
  return model;
}

// Two hosts, and a path between them for each model: the first is the session's own, the others are the rails'.
class Rails {
 public:
  Rails(Simulation& simulation, const std::vector<LinkModel>& models, std::uint64_t seed = 1,
        const SessionConfig& config = {})
      : Rails(simulation, models, seed, config, config) {}
  Rails(Simulation& simulation, const std::vector<LinkModel>& models, std::uint64_t seed,
        const SessionConfig& leftConfig, const SessionConfig& rightConfig)
      : simulation_(simulation) {
    Random random(seed);
    for (const LinkModel& model : models) {
      Link& forth = links_.emplace_back(simulation, model, random.next());
      Link& back = links_.emplace_back(simulation, model, random.next());
      Host& left = add(left_, leftConfig, random);
      Host& right = add(right_, rightConfig, random);
      left.attach(forth, right);
      right.attach(back, left);
    }
  }

  bool connectWithin(Duration limit) {
    for (std::size_t i = 0; i < left_.size(); ++i) {
      left_[i].connect(right_[i], kDatagramBytes);
      right_[i].connect(left_[i], kDatagramBytes);
    }
    return simulation_.runUntil(simulation_.now() + limit, [this] { return allAre(SessionState::kEstablished); });
  }
  bool allAre(SessionState state) const {
    for (const auto* side : {&left_, &right_}) {
      for (const Host& host : *side) {
        if (host.session().state() != state) return false;
      }
    }
    return true;
  }
  Host& left(std::size_t rail = 0) { return left_[rail]; }
  Host& right(std::size_t rail = 0) { return right_[rail]; }
  std::uint64_t delivered(std::size_t rail) const { return links_[2 * rail].counters().delivered; }

 private:
  Host& add(std::deque<Host>& side, const SessionConfig& config, Random& random) {
    const std::uint64_t id = random.next(), entropy = random.next();
    if (side.empty()) return side.emplace_back(simulation_, config, id, entropy);
    return side.emplace_back(simulation_, config, id, entropy, side.front());
  }

  Simulation& simulation_;
  std::deque<Link> links_;
  std::deque<Host> left_, right_;
};

// As a share of all paths' rates together, with messages of 4 MiB.
double utilisation(const std::vector<LinkModel>& models) {
  Simulation simulation;
  Rails rails(simulation, models);
  EXPECT_TRUE(rails.connectWithin(seconds(2)));
  Stream stream(rails.left(), rails.right(), 4 << 20, 4);
  stream.start();
  simulation.runFor(seconds(1));
  const std::uint64_t before = stream.deliveredBytes();
  const Duration duration = seconds(1);
  simulation.runFor(duration);
  double rate = 0;
  for (const LinkModel& model : models) rate += model.bytesPerSecond();
  return static_cast<double>(stream.deliveredBytes() - before) / rate;
}

TEST(Rails, EqualPaths_AllAreUsed) {
  const LinkModel path = linkOf(kGigabit, microseconds(30));
  EXPECT_GT(utilisation({path}), 0.85);
  EXPECT_GT(utilisation({path, path}), 0.85);
  EXPECT_GT(utilisation({path, path, path, path}), 0.8);
}

TEST(Rails, UnequalRates_EachCarriesItsShare) {
  const LinkModel slow = linkOf(0.25 * kGigabit, microseconds(30)), fast = linkOf(kGigabit, microseconds(30));
  EXPECT_GT(utilisation({slow, fast}), 0.85);
  EXPECT_GT(utilisation({fast, slow}), 0.85);
}

TEST(Rails, LongPaths_AllAreUsed) {
  const LinkModel path = linkOf(kLongPathScale * kGigabit, milliseconds(10));
  EXPECT_GT(utilisation({path, path}), 0.8);
}

TEST(Rails, ShortMessages_GoOverTheFirstPathAlone) {
  Simulation simulation;
  const LinkModel path = linkOf(kGigabit, microseconds(30));
  Rails rails(simulation, {path, path});
  ASSERT_TRUE(rails.connectWithin(seconds(2)));
  const std::uint64_t before = rails.delivered(1);
  Stream stream(rails.left(), rails.right(), 16 << 10, 8);
  stream.start();
  simulation.runFor(milliseconds(100));
  EXPECT_GT(stream.deliveredBytes(), 1U << 20);
  EXPECT_LT(rails.delivered(1) - before, 10U) << "besides acknowledgements and probes";
}

TEST(Rails, RandomTrafficOverLossyUnequalPaths_ArrivesIntactAndInOrder) {
  forEachSeed(200, 1, [](std::uint64_t seed) {
    Simulation simulation;
    Random random(seed);
    std::vector<LinkModel> models;
    for (std::size_t rail = 0; rail < 2 + random.below(2); ++rail) {
      models.push_back(linkOf(kGigabit / static_cast<double>(1 + random.below(8)),
                              microseconds(10 + random.below(random.below(2) == 0 ? 100 : 3000))));
      models.back().loss = static_cast<double>(random.below(4)) * 0.01;
    }
    Rails rails(simulation, models, seed);
    ASSERT_TRUE(rails.connectWithin(seconds(20))) << "seed " << seed;
    TrafficModel traffic;
    traffic.messages = 30;
    Conversation forth(simulation, rails.left(), rails.right(), traffic, seed * 2);
    Conversation back(simulation, rails.right(), rails.left(), traffic, seed * 2 + 1);
    rails.left().setObserver([&](const SessionEvent& event) {
      forth.onSenderEvent(event);
      back.onReceiverEvent(event);
    });
    rails.right().setObserver([&](const SessionEvent& event) {
      back.onSenderEvent(event);
      forth.onReceiverEvent(event);
    });
    forth.start();
    back.start();
    const bool done = simulation.runUntil(simulation.now() + seconds(60), [&] { return forth.done() && back.done(); });
    EXPECT_TRUE(done) << "seed " << seed << ": " << forth.progress() << "; " << back.progress();
    forth.checkBuffers();
    back.checkBuffers();
    EXPECT_EQ(forth.faults(), std::vector<std::string>()) << "seed " << seed;
    EXPECT_EQ(back.faults(), std::vector<std::string>()) << "seed " << seed;
  });
}

TEST(Rails, SenderClosesWithPartsUnderWay_AllOfItArrivesBeforeTheEndIsSeen) {
  Simulation simulation;
  LinkModel lossy = linkOf(0.1 * kGigabit, milliseconds(2));
  lossy.loss = 0.02;
  Rails rails(simulation, {linkOf(kGigabit, microseconds(30)), lossy});
  ASSERT_TRUE(rails.connectWithin(seconds(2)));
  std::vector<std::byte> data(2 << 20), sink(data.size());
  fillPattern(data, 7);
  std::vector<SessionEvent> seen;
  rails.right().setObserver([&](const SessionEvent& event) { seen.push_back(event); });
  rails.right().operate([&](Session& session, TimePoint) {
    ASSERT_TRUE(session.postReceive({1, {}, sink.data(), sink.size(), false}).ok());
  });
  rails.left().operate([&](Session& session, TimePoint now) {
    ASSERT_TRUE(session.postSend({1, {}, data.data(), data.size(), 0}).ok());
    session.close(now, false);
  });
  ASSERT_TRUE(simulation.runUntil(simulation.now() + seconds(20), [&] { return seen.size() == 2; }));
  EXPECT_EQ(seen[0].type, SessionEvent::Type::kReceiveComplete);
  EXPECT_TRUE(matchesPattern(sink, 7));
  EXPECT_EQ(rails.right().session().state(), SessionState::kPeerClosed);
  EXPECT_GT(rails.delivered(1), 20U) << "the second path carried nothing";
  rails.right().operate([](Session& session, TimePoint now) { session.close(now, false); });
  simulation.runFor(seconds(5));
  for (std::size_t rail = 0; rail < 2; ++rail) {
    EXPECT_TRUE(rails.left(rail).session().drained()) << rail;
    EXPECT_TRUE(rails.right(rail).session().drained()) << rail;
  }
}

TEST(Rails, LeadFailsWithPartsUnderWay_TheRailIsSilentWhateverArrives) {
  Simulation simulation;
  const LinkModel path = linkOf(0.1 * kGigabit, milliseconds(1));
  Rails rails(simulation, {path, path});
  ASSERT_TRUE(rails.connectWithin(seconds(2)));
  Stream stream(rails.left(), rails.right(), 4 << 20, 2);
  stream.start();
  simulation.runFor(milliseconds(50));
  EXPECT_GT(rails.left(1).session().counters().packetsSent, 100U);
  rails.left().operate([](Session& session, TimePoint) {
    session.fail({ErrorScope::kSession, ErrorCode::kUnavailable, "as a test wants it"}, /*tellPeer=*/true);
  });
  const std::uint64_t sent = rails.left(1).session().counters().packetsSent;
  simulation.runFor(seconds(1));
  EXPECT_EQ(rails.left(1).session().counters().packetsSent, sent);
  EXPECT_TRUE(rails.left(1).session().drained());
  EXPECT_EQ(rails.right().session().state(), SessionState::kFailed) << "was told";
  EXPECT_TRUE(rails.right(1).session().drained());
}

// A rail hears first that the settings differ, and its lead fails with it. Each lead then answers the other's Hello.
TEST(Rails, SettingsDifferAndTheRailIsFaster_BothFailAndFallSilent) {
  Simulation simulation;
  SessionConfig unchecked;
  unchecked.payloadChecksum = PayloadChecksum::kOff;
  Rails rails(simulation, {linkOf(kGigabit, microseconds(50)), linkOf(kGigabit, microseconds(10))}, 1, {}, unchecked);
  EXPECT_FALSE(rails.connectWithin(seconds(5)));
  for (const Host* end : {&rails.left(), &rails.right()}) {
    EXPECT_EQ(end->session().state(), SessionState::kFailed);
    EXPECT_EQ(end->session().error().code, ErrorCode::kConfiguration);
    EXPECT_LT(end->session().counters().packetsSent, 10U);
  }
  EXPECT_LT(rails.delivered(0), 10U);
}

}  // namespace
}  // namespace gloo_bypass::sim
