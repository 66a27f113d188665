#include "tests/sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Far more than any scenario takes; a run that needs it is stuck.
constexpr Duration kTimeLimit = std::chrono::minutes(20);
constexpr Duration kCloseLimit = seconds(90);

CongestionControl anyCongestionControl(Random& random) {
  static constexpr CongestionControl kKinds[] = {CongestionControl::kAuto,  CongestionControl::kAuto,
                                                 CongestionControl::kAuto,  CongestionControl::kFixed,
                                                 CongestionControl::kSwift, CongestionControl::kBbr};
  return random.pick(kKinds);
}

LinkModel lossyLink(Random& random, Duration rtt) {
  LinkModel link;
  link.delay = rtt / 2;
  static constexpr double kLoss[] = {0, 0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3};
  link.loss = random.pick(kLoss);
  if (random.chance(0.2)) link.burstEnter = random.logUniform(0.001, 0.02);
  if (random.chance(0.3)) link.duplication = random.logUniform(0.001, 0.2);
  if (random.chance(0.4)) {
    link.reordering = random.logUniform(0.001, 0.3);
    link.reorderDelay = std::max<Duration>(microseconds(1), rtt / 4);
  }
  if (random.chance(0.3)) link.corruption = random.logUniform(0.001, 0.1);
  if (random.chance(0.4)) link.jitter = rtt / 8;
  static constexpr double kRates[] = {0, 1e7 / 8, 1e8 / 8, 1e9 / 8, 1e10 / 8};
  link.setBytesPerSecond(random.pick(kRates));
  if (link.rateBitsPerSecond > 0) {
    // From a queue that overflows all the time to one that never does.
    const double bdp = link.bytesPerSecond() * static_cast<double>(rtt.count()) * 1e-9;
    link.queueBytes = static_cast<std::size_t>(std::max(bdp * random.logUniform(0.1, 4), 40e3));
  }
  return link;
}

TrafficModel anyTraffic(Random& random, Duration rtt) {
  TrafficModel traffic;
  traffic.messages = static_cast<int>(random.below(40));
  traffic.totalBytes = static_cast<std::size_t>(random.logUniform(2000, 3e6));
  traffic.maxMessageBytes = traffic.totalBytes;
  traffic.ordinaryKeys = 1 + static_cast<int>(random.below(8));
  traffic.spread = Duration(static_cast<Duration::rep>(static_cast<double>(rtt.count()) * random.logUniform(0.1, 20)));
  return traffic;
}

std::string describeTraffic(const TrafficModel& traffic) {
  return fmt::format("{} messages, at most {} B together, {} ordinary keys, within {} us", traffic.messages,
                     traffic.totalBytes, traffic.ordinaryKeys, traffic.spread.count() / 1000);
}

class ScenarioRun {
 public:
  explicit ScenarioRun(const Scenario& scenario)
      : pair_(scenario.path, scenario.config, scenario.seed),
        forth_(pair_.simulation, pair_.a, pair_.b, scenario.forth, scenario.seed * 2 + 11),
        back_(pair_.simulation, pair_.b, pair_.a, scenario.back, scenario.seed * 2 + 12),
        closeFromA_(scenario.seed % 2 == 0) {}

  std::vector<std::string> run() {
    pair_.observe(&forth_, &back_);
    forth_.start();
    back_.start();
    pair_.connect();
    runTraffic();
    if (faults_.empty()) runClose();
    return faults_;
  }

 private:
  void runTraffic() {
    const bool done = pair_.simulation.runUntil(Simulation::kStart + kTimeLimit, [this] {
      return (forth_.done() && back_.done() && bothAre(SessionState::kEstablished)) || failed(pair_.a) ||
             failed(pair_.b) || !forth_.faults().empty() || !back_.faults().empty();
    });
    collect("forth", forth_);
    collect("back", back_);
    if (pair_.simulation.stuck()) faults_.push_back("virtual time stands still: pollTimeout asks for the past");
    noteFailure("a", pair_.a);
    noteFailure("b", pair_.b);
    if (!done) faults_.push_back("deadlock: " + forth_.progress() + "; " + back_.progress());
    if (!faults_.empty()) return;
    for (std::string& fault : pair_.audit(forth_, back_)) faults_.push_back(std::move(fault));
  }

  // One side closes; the other sees it, and closes too. Both must come to an end.
  void runClose() {
    Host& first = closeFromA_ ? pair_.a : pair_.b;
    Host& second = closeFromA_ ? pair_.b : pair_.a;
    close(first);
    const TimePoint limit = pair_.simulation.now() + kCloseLimit;
    if (!pair_.simulation.runUntil(limit, [&] { return second.session().state() == SessionState::kPeerClosed; })) {
      faults_.push_back(fmt::format("the peer of a closed session is in state {}, not kPeerClosed",
                                    static_cast<int>(second.session().state())));
      noteFailure("second", second);
      return;
    }
    close(second);
    if (!pair_.simulation.runUntil(limit, [&] { return first.session().drained() && second.session().drained(); })) {
      faults_.push_back(
          fmt::format("closed sessions do not drain: {} {}", first.session().drained(), second.session().drained()));
    }
    forth_.checkBuffers();
    back_.checkBuffers();
    collect("forth", forth_);
    collect("back", back_);
  }

  void close(Host& host) {
    host.operate([](Session& session, TimePoint now) { session.close(now, false); });
  }
  bool bothAre(SessionState state) const {
    return pair_.a.session().state() == state && pair_.b.session().state() == state;
  }
  static bool failed(const Host& host) { return host.session().state() == SessionState::kFailed; }
  void noteFailure(const char* name, const Host& host) {
    if (failed(host)) faults_.push_back(fmt::format("{} failed: {}", name, host.session().error().message));
  }
  void collect(const char* direction, const Conversation& conversation) {
    for (const std::string& fault : conversation.faults()) faults_.push_back(std::string(direction) + ": " + fault);
  }

  Pair pair_;
  Conversation forth_, back_;
  const bool closeFromA_;
  std::vector<std::string> faults_;
};

}  // namespace

std::string Scenario::describe() const {
  return fmt::format(
      "seed {} (repeat with GLOO_BYPASS_SIM_SEED={})\n  forth: {}\n  back: {}\n  datagrams of {} B, congestion control "
      "{}, lossless {}, repair mode {} ({} %)\n"
      "  traffic forth: {}\n  traffic back: {}",
      seed, seed, path.forth.describe(), path.back.describe(), path.maxDatagramBytes,
      static_cast<int>(config.congestionControl), config.losslessLink, static_cast<int>(config.repair.mode),
      config.repair.percent, describeTraffic(forth), describeTraffic(back));
}

Scenario lossyScenario(std::uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  const Duration rtt(static_cast<Duration::rep>(random.logUniform(10e3, 300e6)));
  scenario.path.forth = lossyLink(random, rtt);
  scenario.path.back = random.chance(0.5) ? scenario.path.forth : lossyLink(random, rtt);
  static constexpr std::size_t kDatagrams[] = {576, 1472, 1472, 1472, 8972, 8972, 32000};
  scenario.path.maxDatagramBytes = random.pick(kDatagrams);
  scenario.config.congestionControl = anyCongestionControl(random);
  if (scenario.config.congestionControl == CongestionControl::kFixed) scenario.config.fixedWindowBytes = 256 << 10;
  if (random.chance(0.3)) scenario.config.shortPathEagerBytes = 64 << 10;
  if (random.chance(0.3)) scenario.config.maxBufferBytes = 256 << 10;
  if (random.chance(0.2)) scenario.config.rendezvousBytes = 1024;
  scenario.forth = anyTraffic(random, rtt);
  scenario.back = anyTraffic(random, rtt);
  static constexpr Repair kRepairs[] = {{Repair::Mode::kAuto, 0}, {Repair::Mode::kAuto, 0}, {Repair::Mode::kOff, 0},
                                        {Repair::Mode::kOn, 0},   {Repair::Mode::kOn, 1},   {Repair::Mode::kOn, 25}};
  scenario.config.repair = random.pick(kRepairs);
  return scenario;
}

Scenario losslessScenario(std::uint64_t seed) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  LinkModel link;
  link.delay = Duration(static_cast<Duration::rep>(random.logUniform(200, 50e3)));
  link.setBytesPerSecond(random.logUniform(1e8, 2e10));
  link.backPressure = true;
  static constexpr std::size_t kDatagrams[] = {1472, 8972, 32000, 65000};
  scenario.path.maxDatagramBytes = random.pick(kDatagrams);
  link.queueBytes = scenario.path.maxDatagramBytes * (2 + random.below(32));
  scenario.path.forth = scenario.path.back = link;
  scenario.config.losslessLink = true;
  if (random.chance(0.3)) scenario.config.shortPathEagerBytes = 64 << 10;
  if (random.chance(0.2)) scenario.config.rendezvousBytes = 1024;
  scenario.forth = anyTraffic(random, 2 * link.delay + microseconds(20));
  scenario.back = anyTraffic(random, 2 * link.delay + microseconds(20));
  scenario.forth.lossless = scenario.back.lossless = true;
  return scenario;
}

std::vector<std::string> runScenario(const Scenario& scenario) { return ScenarioRun(scenario).run(); }

}  // namespace gloo_bypass::sim
