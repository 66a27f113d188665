// Virtual time and the queue of what happens in it. One thread. Nothing here waits: a virtual second costs what its
// events cost.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "transport/base/time.h"

namespace gloo_bypass::sim {

// Something that acts at times of its own choosing. Must outlive the simulation's last step.
class Actor {
 public:
  virtual ~Actor() = default;
  // When wake() is due next; kNever for not until something else happens.
  virtual TimePoint nextWake() const = 0;
  virtual void wake(TimePoint now) = 0;

 private:
  friend class Simulation;
  TimePoint scheduled_ = kNever;
};

class Simulation {
 public:
  // Starts at one hour, so that "long ago" is representable and zero shows up as a mistake.
  static constexpr TimePoint kStart = TimePoint{} + std::chrono::hours(1);

  TimePoint now() const { return now_; }
  // To be called when an actor's nextWake may have become earlier.
  void reschedule(Actor& actor);
  void at(TimePoint time, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }

  // Runs until `done` (asked after every event), or until nothing is left to happen, or until `limit` is reached.
  // Returns whether done became true.
  bool runUntil(TimePoint limit, const std::function<bool()>& done);
  void runFor(Duration duration);
  std::uint64_t steps() const { return steps_; }
  // An actor that asks to be woken in the past for ever would hang a run; it is told apart by this.
  bool stuck() const { return stepsAtThisInstant_ > kMaxStepsPerInstant; }

 private:
  static constexpr std::uint64_t kMaxStepsPerInstant = 1'000'000;

  struct Entry {
    TimePoint time;
    std::uint64_t order;
    Actor* actor;  // null: an action
    std::uint64_t action;
    bool operator>(const Entry& other) const { return time != other.time ? time > other.time : order > other.order; }
  };

  void step(const Entry& entry);

  TimePoint now_ = kStart;
  std::uint64_t order_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t stepsAtThisInstant_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace gloo_bypass::sim
