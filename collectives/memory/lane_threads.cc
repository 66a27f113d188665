#include "collectives/memory/lane_threads.h"

#include <algorithm>
#include <utility>

#include "transport/base/signals_blocked.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};
constexpr std::chrono::hours kLong{1};  // a wait here ends by notification; the bound only makes it look again

}  // namespace

LaneThreads::LaneThreads(int lanes) {
  results_.resize(static_cast<std::size_t>(lanes));
  const SignalsBlocked signals;
  try {
    for (int lane = 1; lane < lanes; ++lane) threads_.emplace_back([this, lane] { serve(lane); });
  } catch (...) {
    end();
    throw;
  }
}

LaneThreads::~LaneThreads() { end(); }

void LaneThreads::end() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  begun_.notifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Status LaneThreads::run(const std::function<Status(int lane)>& work, const std::function<void()>& look) {
  {
    MutexLock lock(mutex_);
    work_ = &work;
    ++operation_;
    running_ = static_cast<int>(threads_.size());
  }
  begun_.notifyAll();
  perform(work, 0);
  MutexLock lock(mutex_);
  while (running_ > 0) {
    done_.waitFor(mutex_, kLookEvery);
    if (running_ > 0) look();
  }
  work_ = nullptr;
  if (exception_ != nullptr) std::rethrow_exception(std::exchange(exception_, nullptr));
  const auto failed = std::find_if(results_.begin(), results_.end(), [](const Status& result) { return !result; });
  return failed == results_.end() ? Status() : *failed;
}

void LaneThreads::perform(const std::function<Status(int lane)>& work, int lane) {
  try {
    Status result = work(lane);
    MutexLock lock(mutex_);
    results_[static_cast<std::size_t>(lane)] = std::move(result);
  } catch (...) {
    MutexLock lock(mutex_);
    exception_ = std::current_exception();
  }
}

void LaneThreads::serve(int lane) {
  std::uint64_t served = 0;
  for (;;) {
    const std::function<Status(int)>* work = nullptr;
    {
      MutexLock lock(mutex_);
      while (!ending_ && operation_ == served) begun_.waitFor(mutex_, kLong);
      if (ending_) return;
      served = operation_;
      work = work_;
    }
    perform(*work, lane);
    MutexLock lock(mutex_);
    if (--running_ == 0) done_.notifyOne();
  }
}

}  // namespace gloo_bypass::collectives
