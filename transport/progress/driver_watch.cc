#include "transport/progress/driver_watch.h"

#include <algorithm>

#include "transport/progress/progress_engine.h"

namespace gloo_bypass {

void DriverWatch::began() noexcept {
  began_.fetch_add(1);
  driving_.store(true);
}

// Either the watch sees before it falls asleep that no one drives, or this call sees that it must notify the watch.
void DriverWatch::ended(TimePoint now) noexcept {
  lastEnded_.store(now.time_since_epoch().count());
  driving_.store(false);
  if (!tellOfEnd_.load()) return;
  {
    const MutexLock lock(mutex_);
    told_ = true;
  }
  condition_.notifyOne();
}

bool DriverWatch::standsStill(TimePoint now) const noexcept {
  return !driving_.load() && now - TimePoint(Duration(lastEnded_.load())) >= kTakeOverAfter;
}

void DriverWatch::awaitStandstill() {
  Duration interval = kFirstSleep;
  while (!standsStill(monotonicNow())) {
    looks_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t seen = began_.load();
    if (!sleep(interval, seen)) return;
    interval = nextSleep(interval, began_.load() != seen, driving_.load());
  }
}

Duration DriverWatch::nextSleep(Duration last, bool anotherWaitBegan, bool driving) noexcept {
  if (anotherWaitBegan) return std::min(last * 2, kBetweenWaits);
  return driving ? std::min(last * 2, kWithinOneWait) : kFirstSleep;
}

// False after stop().
bool DriverWatch::sleep(Duration interval, std::uint64_t seen) {
  const auto end = std::chrono::steady_clock::now() + interval;
  const MutexLock lock(mutex_);
  told_ = false;
  if (interval > kBetweenWaits) {
    tellOfEnd_.store(true);
    if (!driving_.load() || began_.load() != seen) told_ = true;
  }
  while (!stopped_ && !told_ && condition_.waitUntil(mutex_, end)) {
  }
  tellOfEnd_.store(false);
  return !stopped_;
}

void DriverWatch::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  condition_.notifyAll();
}

}  // namespace gloo_bypass
