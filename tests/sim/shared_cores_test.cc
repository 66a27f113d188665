// Hosts that share their cores with others: stopped for milliseconds at a time, while datagrams wait in a socket's
// buffer. Virtual time.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/pair.h"
#include "tests/sim/settings.h"
#include "tests/sim/stream.h"
#include "tools/simulation/core/random.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Share {
  Duration running, stopped;  // about the length of each spell
};

// Takes the core from a host, and gives it back, again and again.
void interrupt(Simulation& simulation, Host& host, Share share, Random* random) {
  const auto about = [random](Duration each) {
    return Duration(static_cast<Duration::rep>(static_cast<double>(each.count()) * (0.5 + random->uniform())));
  };
  simulation.after(about(share.running), [&simulation, &host, share, random, about] {
    host.stop();
    simulation.after(about(share.stopped), [&simulation, &host, share, random] {
      host.resume();
      interrupt(simulation, host, share, random);
    });
  });
}

struct Case {
  std::string name;
  double bytesPerSecond;
  Duration oneWay;
  Share share;
  double least;  // of the rate
};

class SharedCores : public testing::TestWithParam<Case> {};

TEST_P(SharedCores, Stream_GetsWhatTheHostsTimeAllows) {
  const Case& test = GetParam();
  LinkModel link;
  link.setBytesPerSecond(test.bytesPerSecond);
  link.delay = test.oneWay;
  link.queueBytes = static_cast<std::size_t>(0.1 * test.bytesPerSecond);
  Pair pair(PathModel::symmetric(link, 1472), SessionConfig{}, 1);
  ASSERT_TRUE(pair.connectWithin(seconds(1)));
  Stream stream(pair.a, pair.b, 1 << 20, 8);
  pair.simulation.runFor(milliseconds(100));
  stream.start();
  Random random(5);
  interrupt(pair.simulation, pair.a, test.share, &random);
  interrupt(pair.simulation, pair.b, test.share, &random);
  pair.simulation.runFor(milliseconds(500));
  const std::uint64_t before = stream.deliveredBytes();
  pair.simulation.runFor(seconds(2));
  EXPECT_GT(static_cast<double>(stream.deliveredBytes() - before) / 2, test.least * test.bytesPerSecond);
}

constexpr double kGigabit = 1e9 / 8;
constexpr double kLongPathRate = 50e6 * kLongPathScale;
constexpr Share kHalf{milliseconds(3), milliseconds(3)}, kFifth{milliseconds(3), milliseconds(12)};
constexpr Share kMost{microseconds(500), microseconds(250)}, kThird{microseconds(300), microseconds(600)};

// Rack: both run a quarter of the time, and a window that fills the link's queue gets more; with each wait taken for a
// queue it was 0.22. Longer paths: with pacing that does not make up for waits, and windows without room for clumps of
// acknowledgements, it was 0.07, 0.16 and 0.005. Slow racks: without room for three bursts of a host it was 0.67, 0.34
// and 0.57.
INSTANTIATE_TEST_SUITE_P(Paths, SharedCores,
                         testing::Values(Case{"Rack", kGigabit, microseconds(25), kHalf, 0.3},
                                         Case{"RackAndMostOfACore", kGigabit, microseconds(25), kMost, 0.85},
                                         Case{"RackAndThirdOfACore", kGigabit, microseconds(25), kThird, 0.7},
                                         Case{"SlowRack", kGigabit / 5, microseconds(25), kThird, 0.85},
                                         Case{"Metro", kLongPathRate, microseconds(2500), kHalf, 0.6},
                                         Case{"Region", kLongPathRate, milliseconds(5), kHalf, 0.6},
                                         Case{"RegionAndFifthOfACore", kLongPathRate, milliseconds(5), kFifth, 0.25}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gloo_bypass::sim
