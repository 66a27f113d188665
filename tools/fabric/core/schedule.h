// The timed changes of a fabric's edges. Pure: time is an argument, counted from the fabric's start.
//
// At any time an edge has its model at the start with every change applied that has begun and not ended, in the order
// of the description. So changes that overlap need no order of undoing: a link that comes up again has the delay it was
// given while it was down.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tools/fabric/core/description.h"

namespace gloo_bypass::fabric {

struct EdgeUpdate {
  EdgeId edge;
  EdgeModel model;  // from now on
};

// An edge's model at a time, from its model at the start and the fabric's changes in the order of time.
EdgeModel modelAt(const EdgeModel& start, std::span<const ScheduledChange> changes, EdgeId edge, Duration elapsed);

class Schedule {
 public:
  // Keeps what it needs of the description.
  explicit Schedule(const Description& description);

  // When due() has something next; none: never again.
  std::optional<Duration> next() const;
  // The edges whose model has changed since the last call, each once, with its model as of `elapsed`, which must not be
  // before that of an earlier call. A change that began and ended between two calls is not seen.
  std::vector<EdgeUpdate> due(Duration elapsed);

 private:
  struct Moment {
    Duration time;
    std::size_t change;
  };

  std::size_t hosts_;
  std::vector<EdgeModel> start_, current_;
  std::vector<ScheduledChange> changes_;
  std::vector<Moment> moments_;  // ascending
  std::size_t nextMoment_ = 0;
};

// From a host to another and back, of any two and at any time: the longest way of a frame that meets full queues.
// Queues without a limit count as empty. What must wait longer than that before it counts a frame as lost: the timeouts
// of queue pairs.
Duration longestRoundTrip(const Description& description);

// Of all edges and at any time; 0: none is limited. An edge without a rate has no queue.
struct NarrowestEdges {
  std::uint64_t rateBitsPerSecond = 0, queueBytes = 0;
};
NarrowestEdges narrowestEdges(const Description& description);

}  // namespace gloo_bypass::fabric
