#include "transport/dpdk/interrupt_thread.h"

#include <rte_alarm.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace gloo_bypass::dpdk {
namespace {

std::atomic<int> overdue{0};

// Whoever hands work over adds to it, and the interrupt thread reads it first. The EAL's own locks order both already,
// but ThreadSanitizer does not see them.
std::atomic<unsigned> handedOver{0};

// One piece of work:
//
//   kWaiting --> kRunning --> kDone
//
// and `late` from the moment that nobody waits for it any more.
class Job {
 public:
  explicit Job(std::function<void()> work) : work_(std::move(work)) {}

  // At most once; whoever comes second does nothing.
  void run() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (std::exchange(state_, state_ == State::kWaiting ? State::kRunning : state_) != State::kWaiting) return;
    }
    work_();
    std::lock_guard<std::mutex> lock(mutex_);
    state_ = State::kDone;
    if (late_) --overdue;
    changed_.notify_one();
  }

  bool wait(Duration limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return state_ == State::kDone; })) return true;
    late_ = true;
    ++overdue;
    return false;
  }

 private:
  enum class State { kWaiting, kRunning, kDone };
  const std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kWaiting;
  bool late_ = false;
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
    // The alarm may have been kept although it was not set: what it points to stays.
    (void)argument.release();
    job->run();  // no memory, or no timer: better here than never
  } else {
    (void)argument.release();
  }
  return job->wait(limit);
}

bool interruptsOverdue() { return overdue.load() > 0; }

}  // namespace gloo_bypass::dpdk
