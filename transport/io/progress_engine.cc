#include "transport/io/progress_engine.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/base/check.h"
#include "transport/io/driver_watch.h"
#include "transport/io/prompt_wakeup.h"

namespace gloo_bypass {
namespace {

// A poll round that takes this long may have been interrupted by somebody who computes on this core. Spinning then costs that
// thread its time and us our claim to be scheduled promptly when woken: sleep at once instead, for a while. (Yielding
// is no way out: Linux 6.18 makes a yielding thread forfeit a whole slice.)
constexpr auto kPreempted = std::chrono::microseconds(300);
constexpr auto kBusyCoreMemory = std::chrono::milliseconds(5);
// A poll round takes microseconds: worth this many tries before sleeping on the mutex.
constexpr int kLockTries = 200;
// A driver that was asked for access looks this often whether the other thread has it, then sleeps until it has.
constexpr int kHandOverTries = 100;
constexpr auto kLongestHandOver = std::chrono::milliseconds(1);
// A busily polling driver never blocks; waiters beside it whose deadline passes need the mutex now and then.
constexpr auto kLongestHold = std::chrono::milliseconds(1);
constexpr auto kBreath = std::chrono::microseconds(50);
// Bounds every block(), should a wake-up ever be lost.
constexpr auto kLongestBlock = std::chrono::seconds(1);

inline void cpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether another thread took this core since the last call of this thread. A long round alone does not say so: the
// kernel's packet work (SoftRoCE's above all) and a hypervisor interrupt too, and give the core back by themselves.
bool wasPreempted() {
  thread_local long seen = -1;
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return true;
  return std::exchange(seen, usage.ru_nivcsw) != usage.ru_nivcsw;
}

}  // namespace

TimePoint monotonicNow() { return TimePoint(std::chrono::steady_clock::now().time_since_epoch()); }

//   Waiter:  (new) --no driver, or the driver is blocked or the engine--> DRIVING --spin over--> BLOCKED (in the port)
//              |                                                            ^  |                    |   |
//              +--another waiter drives--> PASSIVE --promoted---------------+  +--pred--> done      |   +-- woken --> DRIVING
//                                             ^----------------- another waiter took over ----------+
class ProgressEngine::Impl {
 public:
  Impl(Pollable& target, const ProgressOptions& options) : target_(target), options_(options), pid_(getpid()) {
    engineThread_ = std::thread([this] { engineLoop(); });
    pthread_setname_np(engineThread_.native_handle(), "gloo-bypass");
    if (options_.engineCpu >= 0) {
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      CPU_SET(static_cast<unsigned>(options_.engineCpu), &cpus);
      // A CPU that is not there was refused when the configuration was read; a cpuset may still forbid it.
      (void)pthread_setaffinity_np(engineThread_.native_handle(), sizeof(cpus), &cpus);
    }
  }

  ~Impl() {
    if (getpid() != pid_) {
      engineThread_.detach();  // a forked child: the thread exists in the parent only
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      watch_.stop();
      target_.wake();
    }
    engineThread_.join();
  }

  void exclusive(const std::function<void()>& f) {
    std::unique_lock<std::mutex> lock = acquire();
    f();
    target_.flush(monotonicNow());
    settle();
  }

  bool waitUntil(const std::function<bool()>& pred, TimePoint deadline, bool busyPoll) {
    std::unique_lock<std::mutex> lock = acquire();
    if (pred()) return true;
    Waiter self(pred, deadline, busyPoll);
    const PromptWakeup::Scope restoreSlice;
    bool reached = false;
    bool overtaken = false;
    for (;;) {
      // A newcomer takes over from a blocked driver, since it will spin for a while; once overtaken itself it
      // leaves a blocked driver alone, or two waiters would wake each other without end.
      if (anotherDrives() && (overtaken || !driver_->blocked)) {
        const Passive outcome = waitPassively(self, lock);
        if (outcome != Passive::kPromoted) {
          reached = outcome == Passive::kDone || pred();
          break;
        }
      }
      takeOver(self);
      const Driving outcome = drive(self, lock);
      if (outcome == Driving::kLost) {
        overtaken = true;
        continue;
      }
      reached = outcome == Driving::kDone;
      stopDriving(self);
      break;
    }
    return reached;
  }

 private:
  struct Waiter {
    Waiter(const std::function<bool()>& predicate, TimePoint limit, bool busy)
        : pred(predicate), deadline(limit), busyPoll(busy) {}
    const std::function<bool()>& pred;
    const TimePoint deadline;
    const bool busyPoll;
    std::condition_variable condition;
    bool done = false;      // pred was seen true by another driver
    bool promoted = false;  // asked to drive
    bool blocked = false;   // inside target_.block()
    bool waking = false;    // its condition was notified; counts as a contender until it has the mutex
  };
  enum class Passive { kDone, kPromoted, kTimedOut };
  enum class Driving { kDone, kTimedOut, kLost };

  // A waiter drives; from the engine anybody takes over.
  bool anotherDrives() const { return driver_ != nullptr && driver_ != &engine_; }

  std::unique_lock<std::mutex> acquire() {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) return lock;
    contenders_.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < kLockTries && !lock.owns_lock(); ++i) {
      cpuPause();
      (void)lock.try_lock();
    }
    if (!lock.owns_lock()) lock.lock();
    noLongerContending();
    return lock;
  }

  void noLongerContending() {
    contenders_.fetch_sub(1, std::memory_order_relaxed);
    if (handingOver_) handOverCondition_.notify_one();
  }

  // Lets a thread that asked for exclusive access have it: an unlock followed by a lock would win the race for ever.
  void handOver(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    for (int i = 0; i < kHandOverTries && contenders_.load(std::memory_order_relaxed) > 0; ++i) cpuPause();
    lock.lock();
    if (contenders_.load(std::memory_order_relaxed) == 0) return;
    handingOver_ = true;
    handOverCondition_.wait_for(lock, kLongestHandOver);
    handingOver_ = false;
  }

  // Tells other waiters what has become true.
  void settle() {
    for (Waiter* waiter : passive_) {
      if (!waiter->done && waiter->pred()) {
        waiter->done = true;
        notify(*waiter);
      }
    }
    if (driver_ != nullptr && driver_->blocked &&
        (driver_->pred() || target_.nextDeadline() < blockedUntil_)) {
      target_.wake();
    }
  }

  void disarm() {
    if (!armed_) return;
    armed_ = false;
    target_.disarmWakeup();
  }

  void takeOver(Waiter& self) {
    if (driver_ != nullptr && driver_ != &self) {
      if (driver_ != &engine_) passive_.push_back(driver_);
      if (driver_->blocked) target_.wake();
    }
    driver_ = &self;
    if (&self != &engine_) watch_.began();
    std::erase(passive_, &self);  // listed there by whoever took over while it was blocked
    self.promoted = false;
    target_.drivenBy(&self != &engine_);
    disarm();
  }

  void stopDriving(Waiter& self) {
    GLOO_BYPASS_CHECK(driver_ == &self);
    driver_ = nullptr;
    watch_.ended(monotonicNow());
    promoteNext();
  }

  Passive waitPassively(Waiter& self, std::unique_lock<std::mutex>& lock) {
    if (std::find(passive_.begin(), passive_.end(), &self) == passive_.end()) passive_.push_back(&self);
    const auto limit = steadyTime(self.deadline);
    bool timedOut = false;
    while (!self.done && !timedOut && !(self.promoted && !anotherDrives())) {
      PromptWakeup::request();
      self.promoted = false;  // somebody else began to drive since
      timedOut = self.condition.wait_until(lock, limit) == std::cv_status::timeout;
      if (std::exchange(self.waking, false)) noLongerContending();
    }
    std::erase(passive_, &self);
    if (self.promoted && (self.done || self.pred())) {
      promoteNext();
      return Passive::kDone;
    }
    if (self.done) return Passive::kDone;
    return self.promoted ? Passive::kPromoted : Passive::kTimedOut;
  }

  // Nobody drives: asks the longest waiting one.
  void promoteNext() {
    if (driver_ != nullptr) return;
    for (Waiter* waiter : passive_) {
      if (waiter->done || waiter->promoted) continue;
      waiter->promoted = true;
      notify(*waiter);
      return;
    }
  }

  void notify(Waiter& waiter) {
    if (waiter.blocked) {
      target_.wake();
      return;
    }
    // It needs the mutex to go on: a driver that polls busily must give it up, as to any other contender.
    if (!waiter.waking) {
      waiter.waking = true;
      contenders_.fetch_add(1, std::memory_order_relaxed);
    }
    waiter.condition.notify_one();
  }

  Driving drive(Waiter& self, std::unique_lock<std::mutex>& lock) {
    TimePoint now = monotonicNow();
    TimePoint idleSince = now;
    TimePoint lastBreath = now;
    for (;;) {
      const TimePoint before = std::exchange(now, monotonicNow());
      if (now - before > Duration(kPreempted) && wasPreempted()) coreBusyUntil_ = now + Duration(kBusyCoreMemory);
      if (target_.poll(now)) {
        idleSince = now;
        settle();
      }
      if (self.pred()) return Driving::kDone;
      if (now >= self.deadline) return Driving::kTimedOut;
      if (contenders_.load(std::memory_order_relaxed) > 0) {
        handOver(lock);
        if (driver_ != &self) return Driving::kLost;
        now = monotonicNow();
        continue;
      }
      if (self.busyPoll && !passive_.empty() && now - lastBreath > Duration(kLongestHold)) {
        handingOver_ = true;
        handOverCondition_.wait_for(lock, kBreath);
        handingOver_ = false;
        if (driver_ != &self) return Driving::kLost;
        lastBreath = now = monotonicNow();
        continue;
      }
      if (self.busyPoll || now - idleSince < options_.spin) {
        if (self.busyPoll || now >= coreBusyUntil_) {
          cpuPause();
          continue;
        }
      }
      if (!blockOnce(self, lock)) return Driving::kLost;
      // Woken for nothing: block again without spinning.
      now = monotonicNow();
      idleSince = now - options_.spin;
    }
  }

  // False: another waiter took over meanwhile.
  bool blockOnce(Waiter& self, std::unique_lock<std::mutex>& lock) {
    // One thread at a time inside block(): arming again for ourselves would undo the wake-up of a driver that was taken
    // over from and has not left yet, and either could take what was meant for the other.
    if (insideBlock_) {
      leftBlock_.wait_for(lock, kLongestHandOver);
      return driver_ == &self;
    }
    target_.armWakeup();
    armed_ = true;
    const TimePoint now = monotonicNow();
    if (target_.poll(now)) {
      disarm();
      settle();
      return true;
    }
    blockedUntil_ = std::min({self.deadline, target_.nextDeadline(), now + Duration(kLongestBlock)});
    if (blockedUntil_ > now) {
      self.blocked = insideBlock_ = true;
      const Duration timeout = blockedUntil_ - now;
      lock.unlock();
      PromptWakeup::request();
      target_.block(timeout);
      if (!lock.try_lock()) {
        contenders_.fetch_add(1, std::memory_order_relaxed);
        lock.lock();
        noLongerContending();
      }
      self.blocked = insideBlock_ = false;
      leftBlock_.notify_one();
    }
    if (driver_ != &self) return false;
    disarm();
    return true;
  }

  static std::chrono::steady_clock::time_point steadyTime(TimePoint t) {
    // Far-off deadlines overflow in the system calls below condition_variable: a day is for ever here.
    const TimePoint latest = monotonicNow() + std::chrono::hours(24);
    return std::chrono::steady_clock::time_point(std::min(t, latest).time_since_epoch());
  }

  void engineLoop() {
    for (;;) {
      watch_.awaitStandstill();
      std::unique_lock<std::mutex> lock = acquire();
      if (stop_) {
        disarm();
        return;
      }
      if (!watch_.standsStill(monotonicNow())) continue;  // somebody came in between
      takeOver(engine_);
      if (drive(engine_, lock) == Driving::kLost) continue;
      driver_ = nullptr;
      promoteNext();
    }
  }

  Pollable& target_;
  const ProgressOptions options_;
  const pid_t pid_;
  std::mutex mutex_;  // exclusive access; guards all below
  std::atomic<int> contenders_{0};
  bool handingOver_ = false;
  std::condition_variable handOverCondition_;
  Waiter* driver_ = nullptr;
  std::list<Waiter*> passive_;
  bool armed_ = false;
  bool insideBlock_ = false;
  std::condition_variable leftBlock_;
  TimePoint blockedUntil_{};
  TimePoint coreBusyUntil_{};
  bool stop_ = false;
  const std::function<bool()> stopPredicate_ = [this] { return stop_; };
  Waiter engine_{stopPredicate_, kNever, false};
  DriverWatch watch_;
  std::thread engineThread_;  // last: starts when all else is there
};

ProgressEngine::ProgressEngine(Pollable& target, const ProgressOptions& options)
    : impl_(std::make_unique<Impl>(target, options)) {}
ProgressEngine::~ProgressEngine() = default;

void ProgressEngine::exclusive(const std::function<void()>& f) { impl_->exclusive(f); }

bool ProgressEngine::waitUntil(const std::function<bool()>& pred, TimePoint deadline, bool busyPoll) {
  return impl_->waitUntil(pred, deadline, busyPoll);
}

}  // namespace gloo_bypass
