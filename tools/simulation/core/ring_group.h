// A process group that runs Gloo's ring all-reduce over simulated links: a session between neighbours and a rank at
// each place. Several groups may share the links of a ring. One thread; all must outlive the simulation's last step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/simulation/core/host.h"
#include "tools/simulation/core/link.h"
#include "tools/simulation/core/ring_rank.h"
#include "tools/simulation/core/ring_schedule.h"

namespace gloo_bypass::sim {

// The directed links between neighbours, both ways.
class RingLinks {
 public:
  struct Edge {
    LinkModel model;
    std::uint64_t seed = 1;
  };
  // `edge` says what each directed link is.
  RingLinks(Simulation& simulation, std::size_t ranks,
            const std::function<Edge(std::size_t from, std::size_t to)>& edge);

  std::size_t ranks() const { return toPrevious_.size(); }
  // Null: they are not neighbours.
  Link* find(std::size_t from, std::size_t to) const;
  // Sum over all links, or what one of them counted at most; without their delays.
  fabric::EdgeCounters counters() const;

 private:
  std::vector<std::unique_ptr<Link>> toPrevious_;    // by the rank that sends: the way of the data
  std::vector<std::unique_ptr<Link>> fromPrevious_;  // by the rank that receives; none with two ranks
};

struct RingGroupSettings {
  SessionConfig config;
  std::size_t maxDatagramBytes = 1472;
  int allReduces = 1;      // one after the other; each begins on all ranks when the one before it is done on all
  std::uint64_t seed = 1;  // another for each group
};

class RingGroup {
 public:
  RingGroup(Simulation& simulation, const RingLinks& links, const RingSchedule& schedule,
            const RingGroupSettings& settings);

  void connect();
  bool connected() const;
  // Begins the first all-reduce. `onDone` is called when the last one is over.
  void start(std::function<void()> onDone = nullptr);
  // From `onDone`: all-reduces go on without end, so that other groups are not alone.
  void goOn();
  bool done() const { return times_.size() >= static_cast<std::size_t>(settings_.allReduces); }
  // Of each all-reduce that is over: from its beginning until the last rank has all.
  const std::vector<Duration>& times() const { return times_; }
  const RingRank& rank(std::size_t index) const { return *ranks_[index]; }
  std::uint64_t receivedBytes() const;
  // Of its all-reduces; over 1 where it goes on.
  double progress() const;
  // Sum over all sessions.
  ChannelCounters counters() const;
  std::size_t maxMemoryBytes() const;  // of any session
  // Empty, or which rank cannot go on and why.
  std::string error() const;

 private:
  void startNext();
  void onRankDone();

  Simulation& simulation_;
  const RingSchedule& schedule_;
  const RingGroupSettings settings_;
  // Of the session between rank i and the one before it: the end at rank i, and the other one. With two ranks only rank
  // 1's.
  std::vector<std::unique_ptr<Host>> ends_, previousEnds_;
  std::vector<Host*> hosts_;  // all of them
  std::vector<std::byte> source_, sink_;
  std::vector<std::unique_ptr<RingRank>> ranks_;
  std::function<void()> onDone_;
  std::size_t ranksRunning_ = 0;
  bool goesOn_ = false;
  TimePoint startedAt_{};
  std::vector<Duration> times_;
};

}  // namespace gloo_bypass::sim
