#include "tools/simulation/core/simulation.h"

#include <algorithm>

namespace gloo_bypass::sim {

void Simulation::reschedule(Actor& actor) {
  const TimePoint wake = actor.nextWake();
  if (wake == kNever || wake >= actor.scheduled_) return;  // the entry there wakes it early enough
  actor.scheduled_ = std::max(wake, now_);
  queue_.push({actor.scheduled_, order_++, &actor, 0});
}

void Simulation::at(TimePoint time, std::function<void()> action) {
  actions_.push_back(std::move(action));
  queue_.push({std::max(time, now_), order_++, nullptr, actions_.size() - 1});
}

bool Simulation::runUntil(TimePoint limit, const std::function<bool()>& done) {
  if (done()) return true;
  while (!queue_.empty() && !stuck()) {
    const Entry entry = queue_.top();
    if (entry.time > limit) break;
    queue_.pop();
    step(entry);
    if (done()) return true;
  }
  if (!stuck() && now_ < limit) now_ = limit;
  return false;
}

void Simulation::runFor(Duration duration) {
  runUntil(now_ + duration, [] { return false; });
}

void Simulation::step(const Entry& entry) {
  stepsAtThisInstant_ = entry.time > now_ ? 0 : stepsAtThisInstant_ + 1;
  now_ = entry.time;
  ++steps_;
  if (entry.actor == nullptr) {
    const std::function<void()> action = std::move(actions_[entry.action]);
    action();
    return;
  }
  if (entry.actor->scheduled_ != entry.time) return;  // a newer, earlier entry has taken its place
  entry.actor->scheduled_ = kNever;
  if (entry.actor->nextWake() <= now_) entry.actor->wake(now_);
  reschedule(*entry.actor);
}

}  // namespace gloo_bypass::sim
