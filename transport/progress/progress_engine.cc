#include "transport/progress/progress_engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <thread>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/forked_child.h"
#include "transport/base/mutex.h"
#include "transport/progress/core_use.h"
#include "transport/progress/driver_watch.h"
#include "transport/progress/prompt_wakeup.h"
#include "transport/progress/spin_policy.h"

namespace gloo_bypass {
namespace {

// A poll round takes microseconds: worth this many tries before sleeping on the mutex.
constexpr int kLockTries = 200;
// A driver that must yield access checks this often whether the other thread has it, then sleeps until it has.
constexpr int kHandOverTries = 100;
constexpr auto kLongestHandOver = std::chrono::milliseconds(1);
// A busily polling driver never blocks; waiters beside it need the mutex now and then, when their deadlines pass.
constexpr auto kLongestHold = std::chrono::milliseconds(1);
constexpr auto kBreath = std::chrono::microseconds(50);
// A flood of strangers' data would wake an idle driver for each datagram: once nothing has happened for so long, it
// takes them all together this often.
constexpr Duration kIdle = std::chrono::milliseconds(10), kRestFromStrangers = std::chrono::milliseconds(1);
// Bounds every block(), should a wake-up ever be lost.
constexpr auto kLongestBlock = std::chrono::seconds(1);

inline void cpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// One thread's looks at readyTime().
struct ReadyLook {
  TimePoint at{};
  Duration ready{0};
};

}  // namespace

TimePoint monotonicNow() { return TimePoint(std::chrono::steady_clock::now().time_since_epoch()); }

// The states and their transitions are drawn in the header.
class ProgressEngine::Impl {
 public:
  Impl(Pollable& target, const ProgressOptions& options) : target_(target), options_(options), pid_(getpid()) {
    engineThread_ = std::thread([this] { engineLoop(); });
    pthread_setname_np(engineThread_.native_handle(), "gloo-bypass");
    if (options_.engineCpu >= 0) {
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      CPU_SET(static_cast<unsigned>(options_.engineCpu), &cpus);
      // The configuration refuses a CPU that does not exist; a cpuset may still forbid this one.
      const int failed = pthread_setaffinity_np(engineThread_.native_handle(), sizeof(cpus), &cpus);
      if (failed != 0) {
        std::fprintf(stderr,
                     "gloo-bypass: the engine's thread cannot be pinned to CPU %d (GLOO_BYPASS_ENGINE_CPU): %s\n",
                     options_.engineCpu, std::strerror(failed));
      }
    }
  }

  ~Impl() {
    if (getpid() != pid_) {
      engineThread_.detach();  // a forked child: the thread exists in the parent only
      return;
    }
    {
      const MutexLock lock(mutex_);
      stop_ = true;
      watch_.stop();
      target_.wake();
    }
    engineThread_.join();
  }

  void exclusive(const std::function<void()>& f) {
    if (isParents()) return f();
    const Access access(*this);
    f();
    target_.flush(monotonicNow());
    settle();
  }

  bool waitUntil(const std::function<bool()>& pred, TimePoint deadline, bool busyPoll) {
    if (isParents()) return pred();
    const Access access(*this);
    if (pred()) return true;
    Waiter self(pred, deadline, busyPoll);
    const PromptWakeup::Scope restoreSlice;
    Outcome outcome;
    do {
      outcome = mayDrive(self) ? drive(self) : waitPassively(self);
    } while (outcome == Outcome::kRoleChanges);
    return outcome == Outcome::kReached;
  }

 private:
  enum class State : std::uint8_t { kOutside, kDriving, kBlocked, kPassive, kPromoted, kSatisfied };

  // A thread that waits, or the engine's own.
  struct Waiter {
    Waiter(const std::function<bool()>& predicate, TimePoint limit, bool busy)
        : pred(predicate), deadline(limit), busyPoll(busy) {}
    const std::function<bool()>& pred;
    const TimePoint deadline;
    const bool busyPoll;
    Condition condition;
    State state = State::kOutside;
  };
  // kRoleChanges: from driving to waiting passively, or back.
  enum class Outcome { kReached, kTimedOut, kRoleChanges };

  // In a forked child: a thread of the parent may have held the mutex, and anything sent would go out in the parent's
  // name, into memory that peers still share with it. Destructors call exclusive() all the same.
  bool isParents() const { return forked_child::forks.load(std::memory_order_relaxed) != forks_; }

  // Whether a waiter drives; any waiter may take over from the engine.
  bool anotherDrives() const GLOO_BYPASS_REQUIRES(mutex_) { return driver_ != nullptr && driver_ != &engine_; }

  // A newcomer takes over from a blocked driver, since it will spin for a while. A waiter that was itself overtaken
  // leaves a blocked driver alone, or two waiters would wake each other without end.
  bool mayDrive(const Waiter& self) const GLOO_BYPASS_REQUIRES(mutex_) {
    if (self.state == State::kSatisfied) return false;
    return !anotherDrives() || (self.state == State::kOutside && driver_->state == State::kBlocked);
  }

  static constexpr bool allowed(State from, State to) {
    switch (from) {
      case State::kOutside:
        return to == State::kDriving || to == State::kPassive;
      case State::kDriving:
        return to == State::kBlocked || to == State::kOutside;
      case State::kBlocked:
        return to == State::kDriving || to == State::kPassive || to == State::kOutside;
      case State::kPassive:
        return to == State::kPromoted || to == State::kSatisfied || to == State::kDriving || to == State::kOutside;
      case State::kPromoted:
        return to == State::kPassive || to == State::kSatisfied || to == State::kDriving || to == State::kOutside;
      case State::kSatisfied:
        return to == State::kOutside;
    }
    return false;
  }

  // ---- Transitions: the only functions that change a state. All with exclusive access.

  void become(Waiter& waiter, State next) {
    GLOO_BYPASS_CHECK(allowed(waiter.state, next));
    waiter.state = next;
  }

  // Outside, passive, promoted -> driving. The driver until now: none, the engine, or a blocked waiter.
  void beginDriving(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    GLOO_BYPASS_CHECK(driver_ != &self);
    if (driver_ != nullptr) overtake(*driver_);
    driver_ = &self;
    if (&self != &engine_) watch_.began();
    std::erase(passive_, &self);
    become(self, State::kDriving);
    target_.drivenBy(&self != &engine_);
  }

  // Blocked -> passive; the engine's thread, which steps aside at any point: -> outside. It notices when it has the
  // mutex again.
  void overtake(Waiter& driver) GLOO_BYPASS_REQUIRES(mutex_) {
    if (driver.state == State::kBlocked) {
      target_.wake();
      target_.disarmWakeup();
    }
    if (&driver == &engine_) {
      become(driver, State::kOutside);
    } else {
      become(driver, State::kPassive);
      passive_.push_back(&driver);
    }
  }

  // Driving -> outside: the wait is over.
  void endDriving(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    GLOO_BYPASS_CHECK(driver_ == &self);
    driver_ = nullptr;
    become(self, State::kOutside);
    if (&self != &engine_) watch_.ended(monotonicNow());
    promoteNext();
  }

  // Driving -> blocked: what arrives from now on wakes the port.
  void arm(Waiter& self) {
    become(self, State::kBlocked);
    target_.armWakeup();
  }

  // Blocked -> driving.
  void disarm(Waiter& self) {
    become(self, State::kDriving);
    target_.disarmWakeup();
  }

  // Outside -> passive; promoted -> passive: another began to drive since. Satisfied and passive stay.
  void becomePassive(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    if (self.state == State::kOutside) passive_.push_back(&self);
    if (self.state == State::kOutside || self.state == State::kPromoted) become(self, State::kPassive);
  }

  // Passive -> promoted or satisfied; promoted -> satisfied.
  void tell(Waiter& waiter, State what) GLOO_BYPASS_REQUIRES(mutex_) {
    const bool toldBefore = waiter.state != State::kPassive;
    become(waiter, what);
    if (insidePort_ == &waiter) {  // overtaken, and not out of block() yet
      target_.wake();
      return;
    }
    // It needs the mutex to go on: a driver that polls busily must give it up, as to any other contender.
    if (!toldBefore) contenders_.fetch_add(1, std::memory_order_relaxed);
    waiter.condition.notifyOne();
  }

  // Passive, promoted, satisfied -> outside: the wait is over.
  void endWaiting(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    std::erase(passive_, &self);
    become(self, State::kOutside);
    promoteNext();
  }

  // No one drives: promotes the longest waiting one, unless a promoted waiter has not run yet.
  void promoteNext() GLOO_BYPASS_REQUIRES(mutex_) {
    if (driver_ != nullptr) return;
    Waiter* next = nullptr;
    for (Waiter* waiter : passive_) {
      if (waiter->state == State::kPromoted) return;
      if (next == nullptr && waiter->state == State::kPassive) next = waiter;
    }
    if (next != nullptr) tell(*next, State::kPromoted);
  }

  // ---- Access

  class GLOO_BYPASS_ANNOTATE(scoped_lockable) Access {
   public:
    explicit Access(Impl& engine) GLOO_BYPASS_ACQUIRES(engine.mutex_) : engine_(engine) { engine.acquire(); }
    ~Access() GLOO_BYPASS_RELEASES() { engine_.mutex_.unlock(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    Impl& engine_;
  };

  void acquire() GLOO_BYPASS_ACQUIRES(mutex_) {
    if (mutex_.tryLock()) return;
    contenders_.fetch_add(1, std::memory_order_relaxed);
    for (int i = 0; i < kLockTries; ++i) {
      cpuPause();
      if (mutex_.tryLock()) return noLongerContending();
    }
    mutex_.lock();
    noLongerContending();
  }

  void noLongerContending() {
    contenders_.fetch_sub(1, std::memory_order_relaxed);
    letIn_.notifyAll();
  }

  // Yields to a thread that asked for exclusive access: a plain unlock and lock would win the race for ever.
  void handOver() GLOO_BYPASS_REQUIRES(mutex_) {
    mutex_.unlock();
    for (int i = 0; i < kHandOverTries && contenders_.load(std::memory_order_relaxed) > 0; ++i) cpuPause();
    mutex_.lock();
    if (contenders_.load(std::memory_order_relaxed) > 0) letIn_.waitFor(mutex_, kLongestHandOver);
  }

  // Satisfies the waiters that have a true predicate now.
  void settle() GLOO_BYPASS_REQUIRES(mutex_) {
    for (Waiter* waiter : passive_) {
      if (waiter->state != State::kSatisfied && waiter->pred()) tell(*waiter, State::kSatisfied);
    }
    if (driver_ != nullptr && driver_->state == State::kBlocked &&
        (driver_->pred() || target_.nextDeadline() < blockedUntil_)) {
      target_.wake();
    }
  }

  // ---- Roles

  Outcome waitPassively(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    const auto limit = steadyTime(self.deadline);
    bool timedOut = false;
    while (self.state != State::kSatisfied && !timedOut && !(self.state == State::kPromoted && !anotherDrives())) {
      becomePassive(self);
      PromptWakeup::request();
      timedOut = !self.condition.waitUntil(mutex_, limit);
      if (self.state != State::kPassive) noLongerContending();
    }
    const bool promoted = self.state == State::kPromoted && !anotherDrives();
    const bool reached = self.state == State::kSatisfied || self.pred();
    if (promoted && !reached) return Outcome::kRoleChanges;
    endWaiting(self);
    return reached ? Outcome::kReached : Outcome::kTimedOut;
  }

  // kRoleChanges: another waiter took over.
  Outcome drive(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    beginDriving(self);
    const Outcome outcome = pollUntilOver(self);
    if (outcome != Outcome::kRoleChanges) endDriving(self);
    return outcome;
  }

  // Since when nothing has happened, and whether the driver slept meanwhile: then it should neither poll any longer nor
  // rest.
  struct Quiet {
    TimePoint since;
    bool slept = false;
    bool rested = false;
  };

  void onEvent(TimePoint now, Quiet& quiet) GLOO_BYPASS_REQUIRES(mutex_) {
    spin_.onEvent(now - quiet.since);
    quiet = {now};
    settle();
  }

  Outcome pollUntilOver(Waiter& self) GLOO_BYPASS_REQUIRES(mutex_) {
    TimePoint now = monotonicNow();
    Quiet quiet{now};
    TimePoint lastBreath = now;
    for (;;) {
      now = monotonicNow();
      if (target_.poll(now)) onEvent(now, quiet);
      if (self.pred()) return Outcome::kReached;
      if (now >= self.deadline) return Outcome::kTimedOut;
      if (contenders_.load(std::memory_order_relaxed) > 0) {
        handOver();
        if (driver_ != &self) return Outcome::kRoleChanges;
        now = monotonicNow();
        continue;
      }
      if (self.busyPoll && !passive_.empty() && now - lastBreath > Duration(kLongestHold)) {
        letIn_.waitFor(mutex_, kBreath);
        if (driver_ != &self) return Outcome::kRoleChanges;
        lastBreath = now = monotonicNow();
        continue;
      }
      if (core_.worthALook(now)) lookWhetherShared(now);
      if (self.busyPoll || (!quiet.slept && !core_.shared(now) && now - quiet.since < spin_.window())) {
        cpuPause();
        continue;
      }
      if (!blockOnce(self, quiet)) return Outcome::kRoleChanges;
      now = monotonicNow();
    }
  }

  void lookWhetherShared(TimePoint now) GLOO_BYPASS_REQUIRES(mutex_) {
    thread_local ReadyLook last;
    const ReadyLook before = std::exchange(last, {now, readyTime()});
    core_.onLook(now, now - before.at, last.ready - before.ready, coreSeemsIdle);
  }

  // False: another waiter took over meanwhile.
  bool blockOnce(Waiter& self, Quiet& quiet) GLOO_BYPASS_REQUIRES(mutex_) {
    // One thread at a time inside block(). Arming again for ourselves would undo the wake-up of an overtaken driver
    // that has not left yet, and either could take the other's event.
    if (insidePort_ != nullptr) {
      letIn_.waitFor(mutex_, kLongestHandOver);
      return driver_ == &self;
    }
    if (target_.disturbed() && monotonicNow() - quiet.since >= kIdle) {
      (void)rest(self, kRestFromStrangers);
      return driver_ == &self;
    }
    if (!std::exchange(quiet.rested, true) && rest(self, target_.patience())) return driver_ == &self;
    arm(self);
    const TimePoint now = monotonicNow();
    const bool happened = target_.poll(now);
    if (happened || target_.disturbed()) {
      disarm(self);
      if (happened) onEvent(now, quiet);
      return true;
    }
    quiet.slept = true;
    blockedUntil_ = std::min({self.deadline, target_.nextDeadline(), now + Duration(kLongestBlock)});
    if (blockedUntil_ > now) {
      insidePort_ = &self;
      const Duration timeout = blockedUntil_ - now;
      mutex_.unlock();
      PromptWakeup::request();
      target_.block(timeout);
      if (!mutex_.tryLock()) {
        contenders_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        noLongerContending();
      }
      insidePort_ = nullptr;
      letIn_.notifyAll();
    }
    if (driver_ != &self) return false;
    disarm(self);
    return true;
  }

  // Waits for more to arrive, for at most `longest`; false: for no time at all.
  bool rest(const Waiter& self, Duration longest) GLOO_BYPASS_REQUIRES(mutex_) {
    const TimePoint now = monotonicNow();
    const Duration time = std::min({longest, target_.nextDeadline() - now, self.deadline - now});
    if (time <= Duration{0}) return false;
    PromptWakeup::request();
    letIn_.waitFor(mutex_, time);
    return true;
  }

  static std::chrono::steady_clock::time_point steadyTime(TimePoint t) {
    // Far-off deadlines overflow in the system calls below condition_variable: ten years mean for ever here.
    const TimePoint latest = monotonicNow() + std::chrono::hours(10 * 365 * 24);
    return std::chrono::steady_clock::time_point(std::min(t, latest).time_since_epoch());
  }

  void engineLoop() {
    for (;;) {
      watch_.awaitStandstill();
      const Access access(*this);
      if (stop_) return;
      if (!watch_.standsStill(monotonicNow())) continue;  // somebody came in between
      (void)drive(engine_);
    }
  }

  Pollable& target_;
  const ProgressOptions options_;
  const pid_t pid_;
  const int forks_ = forked_child::forks.load(std::memory_order_relaxed);
  Mutex mutex_;  // exclusive access
  std::atomic<int> contenders_{0};
  // A driver waits here for another thread to get access, or to leave block().
  Condition letIn_;
  // Driving or blocked; nobody else is.
  Waiter* driver_ GLOO_BYPASS_GUARDED_BY(mutex_) = nullptr;
  // Passive, promoted or satisfied; the longest waiting first.
  std::list<Waiter*> passive_ GLOO_BYPASS_GUARDED_BY(mutex_);
  // Inside target_.block(); passive by now if it was overtaken there.
  Waiter* insidePort_ GLOO_BYPASS_GUARDED_BY(mutex_) = nullptr;
  TimePoint blockedUntil_ GLOO_BYPASS_GUARDED_BY(mutex_){};
  SpinPolicy spin_ GLOO_BYPASS_GUARDED_BY(mutex_){options_.spin};
  CoreShare core_ GLOO_BYPASS_GUARDED_BY(mutex_);
  bool stop_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  const std::function<bool()> stopPredicate_ = [this]() GLOO_BYPASS_REQUIRES(mutex_) { return stop_; };
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
