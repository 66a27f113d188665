#include "transport/dpdk/interrupt_thread.h"

#include <rte_alarm.h>

#include <atomic>
#include <memory>
#include <utility>

#include "transport/base/mutex.h"

namespace gloo_bypass::dpdk {
namespace {

std::atomic<int> overdue{0};

// The submitting thread increments it, and the interrupt thread reads it first. The EAL's own locks already order the
// two, but ThreadSanitizer does not see them.
std::atomic<unsigned> handedOver{0};

// A piece of work:
//
//   kWaiting --> kRunning --> kDone
//
// `late` is set from the moment the submitter stops waiting.
class Job {
 public:
  explicit Job(std::function<void()> work) : work_(std::move(work)) {}

  // Runs at most once; a second caller does nothing.
  void run() {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(state_, state_ == State::kWaiting ? State::kRunning : state_) != State::kWaiting) return;
    }
    work_();
    const MutexLock lock(mutex_);
    state_ = State::kDone;
    if (late_) --overdue;
    changed_.notifyOne();
  }

  bool wait(Duration limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    const MutexLock lock(mutex_);
    while (state_ != State::kDone && changed_.waitUntil(mutex_, end)) {
    }
    if (state_ == State::kDone) return true;
    late_ = true;
    ++overdue;
    return false;
  }

 private:
  enum class State { kWaiting, kRunning, kDone };
  const std::function<void()> work_;
  Mutex mutex_;
  Condition changed_;
  State state_ GLOO_BYPASS_GUARDED_BY(mutex_) = State::kWaiting;
  bool late_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
};

void runJob(void* argument) {
  (void)handedOver.load(std::memory_order_acquire);
  const std::unique_ptr<std::shared_ptr<Job>> job(static_cast<std::shared_ptr<Job>*>(argument));
  (*job)->run();
}

}  // namespace

bool betweenInterrupts(std::function<void()> work, Duration limit) {
  const auto job = std::make_shared<Job>(std::move(work));
  auto argument = std::make_unique<std::shared_ptr<Job>>(job);
  handedOver.fetch_add(1, std::memory_order_release);
  if (rte_eal_alarm_set(1, runJob, argument.get()) != 0) {
    // The alarm may fire although setting it failed: keep its argument alive.
    (void)argument.release();
    job->run();  // no memory, or no timer: better here than never
  } else {
    (void)argument.release();
  }
  return job->wait(limit);
}

bool interruptsOverdue() { return overdue.load() > 0; }

}  // namespace gloo_bypass::dpdk
