#include "tools/simulation/ring_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <numeric>

#include "tools/fabric/core/schedule.h"
#include "transport/base/seconds.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::sim {
namespace {

constexpr std::size_t kIpv4UdpBytes = 28;
constexpr std::uint64_t kEventsBetweenQuestions = 1 << 14;

// The CPU time of this process, which has one thread.
double cpuSecondsNow() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

LinkModel linkOf(const fabric::EdgeModel& edge) {
  LinkModel link;
  static_cast<fabric::EdgeModel&>(link) = edge;
  link.frameOverheadBytes = kLayer2OverheadBytes;
  return link;
}

// The description's timed changes, from the first all-reduce on.
class TimedChanges final : public Actor {
 public:
  TimedChanges(const fabric::Description& description, RingLinks& links) : schedule_(description), links_(links) {}

  void start(Simulation& simulation) {
    start_ = simulation.now();
    simulation.reschedule(*this);
  }
  TimePoint nextWake() const override {
    const auto next = schedule_.next();
    return next && *next < kNever - start_ ? start_ + *next : kNever;
  }
  void wake(TimePoint now) override {
    for (const fabric::EdgeUpdate& update : schedule_.due(now - start_)) {
      if (Link* const link = links_.find(update.edge.from, update.edge.to)) link->setModel(linkOf(update.model));
    }
  }

 private:
  fabric::Schedule schedule_;
  RingLinks& links_;
  TimePoint start_ = Simulation::kStart;
};

class RingRun {
 public:
  RingRun(const fabric::Description& description, const RingRunSettings& settings,
          const std::function<bool(const RingProgress&)>& goOn)
      : settings_(settings),
        goOn_(goOn),
        schedule_(description.hosts.size(), settings.bytes, largestSegment(description.hosts.size(), settings)),
        links_(simulation_, description.hosts.size(),
               [&](std::size_t from, std::size_t to) {
                 const std::uint64_t seed = fabric::seedOf(description.seed, description.edgeName(from, to));
                 return RingLinks::Edge{linkOf(description.edge(from, to)), seed};
               }),
        changes_(description, links_) {
    for (std::size_t i = 0; i < settings.groups; ++i) {
      RingGroupSettings group;
      group.config = settings.session;
      group.maxDatagramBytes = settings.mtu - kIpv4UdpBytes;
      group.allReduces = settings.warmUps + settings.measured;
      group.seed = fabric::seedOf(description.seed, fmt::format("group {}", i));
      groups_.push_back(std::make_unique<RingGroup>(simulation_, links_, schedule_, group));
    }
    result_.ranks = schedule_.ranks();
    result_.groups = settings.groups;
    result_.segmentsPerRank = schedule_.segmentsPerRank();
    result_.segmentBytes = schedule_.segmentBytes();
    result_.bounds = boundsOf(description);
  }

  RingRunResult run() {
    const double cpuStart = cpuSecondsNow();
    if (connect()) {
      const TimePoint start = simulation_.now();
      const fabric::EdgeCounters before = links_.counters();
      allReduce();
      result_.elapsed = simulation_.now() - start;
      collect(before);
    }
    result_.events = simulation_.steps();
    result_.cpuSeconds = cpuSecondsNow() - cpuStart;
    return std::move(result_);
  }

 private:
  static std::size_t largestSegment(std::size_t ranks, const RingRunSettings& settings) {
    if (settings.maxSegmentBytes > 0) return settings.maxSegmentBytes;
    const std::uint64_t half = settings.bytes / (2 * ranks) + RingSchedule::kElementBytes;
    return (half / RingSchedule::kElementBytes + 1) * RingSchedule::kElementBytes;
  }

  RingBounds boundsOf(const fabric::Description& description) const {
    std::vector<IdealEdge> edges;
    for (std::size_t rank = 0; rank < schedule_.ranks(); ++rank) {
      const fabric::EdgeModel& edge = description.edge(rank, schedule_.previous(rank));
      IdealEdge ideal;
      ideal.rateBitsPerSecond = edge.rateBitsPerSecond;
      ideal.delay = edge.delay;
      ideal.payloadBytes = settings_.mtu - kIpv4UdpBytes - wire::dataHeaderBytes(wire::FrameType::kChunk);
      ideal.loss = edge.loss;
      ideal.roundTrip = edge.delay + description.edge(schedule_.previous(rank), rank).delay;
      ideal.headerBytes = kLayer2OverheadBytes + wire::dataHeaderBytes(wire::FrameType::kChunk) + edge.overheadBytes;
      edges.push_back(ideal);
    }
    return ringBounds(schedule_, edges, settings_.groups);
  }

  bool connect() {
    for (const auto& group : groups_) group->connect();
    // A session gives up by itself, well before this.
    constexpr Duration kLimit = std::chrono::minutes(2), kStep = std::chrono::milliseconds(10);
    const TimePoint limit = simulation_.now() + kLimit;
    const auto connected = [](const auto& group) { return group->connected(); };
    while (!std::all_of(groups_.begin(), groups_.end(), connected)) {
      if (const std::string error = firstError(); !error.empty() || simulation_.now() >= limit) {
        return fail(error.empty() ? "the ranks did not connect within 2 min" : error);
      }
      simulation_.runFor(kStep);
    }
    return true;
  }

  void allReduce() {
    const TimePoint start = simulation_.now();
    changes_.start(simulation_);
    groupsRunning_ = groups_.size();
    for (const auto& group : groups_) group->start([this, &group] { onGroupDone(*group); });
    bool stopped = false;
    const bool done = simulation_.runUntil(start + settings_.timeLimit, [&] {
      if (groupsRunning_ == 0) return true;
      if (simulation_.steps() % kEventsBetweenQuestions == 0) stopped = !mayGoOn(simulation_.now() - start);
      return stopped;
    });
    if (groupsRunning_ == 0) {
      result_.end = RingRunEnd::kDone;
    } else if (const std::string error = firstError(); !error.empty()) {
      fail(error);
    } else if (done) {
      result_.end = RingRunEnd::kInterrupted;
    } else if (simulation_.stuck()) {
      fail("virtual time stands still: a session asks to be woken in the past");
    } else {
      fail(fmt::format("not finished within {} s of virtual time: {:.3g} % of the bytes",
                       secondsOf(settings_.timeLimit), 100 * progress()));
    }
  }

  bool mayGoOn(Duration elapsed) { return firstError().empty() && goOn_({progress(), elapsed, simulation_.steps()}); }

  // Until the last one has done its all-reduces the others go on: each is measured beside all others. At the first
  // one's end all had the same time.
  void onGroupDone(RingGroup& done) {
    const bool isFirst = groupsRunning_-- == groups_.size();
    if (groupsRunning_ > 0) done.goOn();
    if (!isFirst) return;
    std::vector<double> shares;
    for (const auto& group : groups_) shares.push_back(static_cast<double>(group->receivedBytes()));
    result_.fairness = jainIndex(shares);
  }

  void collect(const fabric::EdgeCounters& before) {
    for (const auto& group : groups_) {
      const auto place = [&](int allReduces) {
        return static_cast<std::ptrdiff_t>(
            std::min<std::size_t>(group->times().size(), static_cast<std::size_t>(allReduces)));
      };
      result_.times.emplace_back(group->times().begin() + place(settings_.warmUps),
                                 group->times().begin() + place(settings_.warmUps + settings_.measured));
      result_.payloadBytes += group->receivedBytes();
      result_.maxSessionMemoryBytes = std::max(result_.maxSessionMemoryBytes, group->maxMemoryBytes());
      result_.sessions += group->counters();
    }
    fabric::EdgeCounters edges = links_.counters();
    edges.offered -= before.offered;
    edges.offeredBytes -= before.offeredBytes;
    edges.lostRandomly -= before.lostRandomly;
    edges.lostInBurst -= before.lostInBurst;
    edges.lostInQueue -= before.lostInQueue;
    edges.lostWhileDown -= before.lostWhileDown;
    result_.edges = edges;
  }

  bool fail(std::string error) {
    result_.end = RingRunEnd::kFailed;
    result_.error = std::move(error);
    return false;
  }

  std::string firstError() const {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const std::string error = groups_[i]->error();
      if (!error.empty()) return groups_.size() == 1 ? error : fmt::format("group {}, {}", i, error);
    }
    return {};
  }

  double progress() const {
    double sum = 0;
    for (const auto& group : groups_) sum += std::min(1.0, group->progress());
    return sum / static_cast<double>(groups_.size());
  }

  const RingRunSettings settings_;
  const std::function<bool(const RingProgress&)>& goOn_;
  Simulation simulation_;
  const RingSchedule schedule_;
  RingLinks links_;
  TimedChanges changes_;
  std::vector<std::unique_ptr<RingGroup>> groups_;
  std::size_t groupsRunning_ = 0;
  RingRunResult result_;
};

}  // namespace

std::vector<Duration> RingRunResult::sortedTimes() const {
  std::vector<Duration> all;
  for (const auto& group : times) all.insert(all.end(), group.begin(), group.end());
  std::sort(all.begin(), all.end());
  return all;
}

Duration RingRunResult::median() const {
  const std::vector<Duration> all = sortedTimes();
  if (all.empty()) return Duration{0};
  return (all[(all.size() - 1) / 2] + all[all.size() / 2]) / 2;
}

RingRunResult runRing(const fabric::Description& description, const RingRunSettings& settings,
                      const std::function<bool(const RingProgress&)>& goOn) {
  return RingRun(description, settings, goOn).run();
}

double jainIndex(const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const double squares = std::inner_product(shares.begin(), shares.end(), shares.begin(), 0.0);
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 1;
}

}  // namespace gloo_bypass::sim
