// Frames on their way along the emulated edges, each until its time of arrival. Pure: time is an argument.
//
// Most frames of one edge arrive in the order in which they left, so each edge has a first-in-first-out queue, and a
// small heap knows the queues' fronts; only a frame that overtakes (jitter, reordering) goes through a heap of its own.
// So a quarter of a million frames under way cost no more for each than a few. Thread: one owner. The caller's
// references pass to this object with push and back with pop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <vector>

#include "tools/fabric/switch/frame_arena.h"
#include "transport/base/time.h"

namespace gloo_bypass::fabric {

class HeldFrames {
 public:
  // Lanes are the edges, by an index of the caller's.
  explicit HeldFrames(std::size_t lanes) : queues_(lanes) {}

  struct Due {
    std::size_t lane = 0;
    TimePoint due{};
    Frame* frame = nullptr;
  };

  void push(std::size_t lane, TimePoint due, Frame* frame);
  // The earliest frame that is due by `now`; frames of the same time in the order in which they were pushed.
  std::optional<Due> pop(TimePoint now);
  // kNever: none is held.
  TimePoint nextDue() const;
  std::size_t size() const { return size_; }

 private:
  struct Entry {
    TimePoint due;
    std::uint64_t order;
    std::size_t lane;
    Frame* frame;
    bool operator>(const Entry& other) const { return due != other.due ? due > other.due : order > other.order; }
  };
  using Heap = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;

  std::vector<std::deque<Entry>> queues_;  // by lane; `due` never decreases
  Heap fronts_;                            // the first entry of each queue that has any
  Heap overtakers_;
  std::uint64_t order_ = 0;
  std::size_t size_ = 0;
};

}  // namespace gloo_bypass::fabric
