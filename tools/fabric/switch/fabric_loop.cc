#include "tools/fabric/switch/fabric_loop.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace gloo_bypass::fabric {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Waking up takes some 10 us and more; a shorter wait is spent polling.
constexpr Duration kSpin = microseconds(20);
// Between two looks at the rings while traffic may go on: what a frame is late at most by our own sleep.
constexpr Duration kNap = microseconds(50);
constexpr Duration kLinger = milliseconds(2);
// A wake-up can be missed (memif_ring.h, askForEvents).
constexpr Duration kLongestSleep = milliseconds(5);
// Sleeps end late by about as much.
constexpr Duration kWakeMargin = microseconds(5);
// How often descriptors are looked at while there is no time to sleep.
constexpr Duration kServiceInterval = milliseconds(1);

timespec toTimespec(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  timespec result{};
  result.tv_sec = seconds.count();
  result.tv_nsec = (duration - seconds).count();
  return result;
}

}  // namespace

TimePoint monotonicTime() { return TimePoint(std::chrono::steady_clock::now().time_since_epoch()); }

bool goBeforeOthers() {
  sched_param parameters{};
  parameters.sched_priority = 1;
  return ::sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &parameters) == 0;
}

void FabricLoop::run(const std::atomic<bool>& stop, TimePoint end, Duration interval,
                     const std::function<void(TimePoint)>& report) {
  (void)::prctl(PR_SET_TIMERSLACK, 1UL);  // ns; the kernel adds 50 us otherwise
  TimePoint lastMoved = monotonicTime(), nextService = lastMoved;
  TimePoint nextReport = interval == Duration::max() ? kNever : lastMoved + interval;
  while (!stop.load(std::memory_order_relaxed)) {
    const TimePoint now = monotonicTime();
    if (now >= end) break;
    if (now >= nextService) {
      waitForPorts(Duration::zero());
      nextService = now + kServiceInterval;
    }
    if (now >= nextReport) {
      report(now);
      nextReport = std::max(nextReport + interval, now);
    }
    if (switch_.poll(now)) {
      lastMoved = now;
      setArmed(false);
    } else {
      idle(now, std::min({switch_.nextDue(), nextReport, end}), now - lastMoved);
    }
  }
}

void FabricLoop::idle(TimePoint now, TimePoint limit, Duration sinceMoved) {
  if (limit <= now + kSpin || sinceMoved < kSpin) return;
  const Duration left = limit == kNever ? kLongestSleep : limit - now - kWakeMargin;
  if (switch_.blocked() || sinceMoved < kLinger || left < 4 * kNap) {
    std::this_thread::sleep_for(std::min(left, kNap));
    return;
  }
  if (!armed_) {
    setArmed(true);
    return;  // to what came before the ports knew that they are to wake us
  }
  waitForPorts(std::min(left, kLongestSleep));
}

void FabricLoop::setArmed(bool armed) {
  if (std::exchange(armed_, armed) != armed) switch_.wakeOnFrames(armed);
}

void FabricLoop::waitForPorts(Duration limit) {
  pollfd polled{epoll_, POLLIN, 0};
  const timespec time = toTimespec(limit);
  if (::ppoll(&polled, 1, &time, nullptr) <= 0) return;
  // Takes the edge-triggered events; the others stay until the port has seen to them.
  std::array<epoll_event, 64> events;
  if (::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0) > 0) switch_.service();
}

}  // namespace gloo_bypass::fabric
