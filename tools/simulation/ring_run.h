// Runs ring all-reduces of one or several process groups over a described fabric, in virtual time.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/simulation/core/ring_bounds.h"
#include "tools/simulation/core/ring_group.h"
#include "transport/base/config.h"
#include "transport/channel/message.h"

namespace gloo_bypass::sim {

struct RingRunSettings {
  std::uint64_t bytes = 10'000'000;
  std::size_t maxSegmentBytes = RingSchedule::kGlooSegmentBytes;  // 0: two segments a rank, whatever their size
  std::size_t groups = 1;
  int warmUps = 1, measured = 3;  // all-reduces of each group, one after the other
  std::size_t mtu = 1500;
  SessionConfig session;                       // but for the datagrams' size, which the MTU says
  Duration timeLimit = std::chrono::hours(1);  // of virtual time, all all-reduces together
};

struct RingProgress {
  double share = 0;  // of the bytes, 0 to 1
  Duration elapsed{0};
  std::uint64_t events = 0;
};

enum class RingRunEnd : std::uint8_t { kDone, kFailed, kInterrupted };

struct RingRunResult {
  RingRunEnd end = RingRunEnd::kFailed;
  std::string error;  // kFailed: why, one line
  std::size_t ranks = 0, groups = 0;
  std::size_t segmentsPerRank = 0, segmentBytes = 0;
  RingBounds bounds;
  std::vector<std::vector<Duration>> times;  // of each group, the measured all-reduces
  Duration elapsed{0};                       // from the beginning of the first all-reduce until the last one's end
  // Jain's index of what the groups received until the first of them had finished: 1 is equal shares, 1/groups is one
  // has all.
  double fairness = 1;
  // Of all all-reduces, warm-ups included; connecting is not.
  fabric::EdgeCounters edges;
  ChannelCounters sessions;
  std::uint64_t payloadBytes = 0;
  std::size_t maxSessionMemoryBytes = 0;
  std::uint64_t events = 0;
  double cpuSeconds = 0;

  std::vector<Duration> sortedTimes() const;  // of all groups
  Duration median() const;                    // zero of nothing
};

// Ranks are the description's hosts in their order. `goOn` is asked now and then; false ends the run.
RingRunResult runRing(const fabric::Description& description, const RingRunSettings& settings,
                      const std::function<bool(const RingProgress&)>& goOn);

// (sum of shares)^2 / (n x sum of their squares); 1 of nothing.
double jainIndex(const std::vector<double>& shares);

}  // namespace gloo_bypass::sim
