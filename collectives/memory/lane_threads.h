// Threads for the lanes beyond the first: an operation's lanes run at the same time, lane 0 on the caller's thread.
//
// Thread: one at a time calls run().
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "transport/base/mutex.h"
#include "transport/base/status.h"

namespace gloo_bypass::collectives {

class LaneThreads {
 public:
  // Starts `lanes` - 1 threads; they begin with all signals blocked. Throws std::system_error if one cannot start.
  explicit LaneThreads(int lanes);
  ~LaneThreads();

  // Runs work(0) here and work(1..lanes-1) on the threads, and waits for all. While it waits it calls `look` ten times
  // a second. The error of the lowest lane that has one. An exception of a lane is thrown once all have ended.
  Status run(const std::function<Status(int lane)>& work, const std::function<void()>& look);

 private:
  void serve(int lane);
  void perform(const std::function<Status(int lane)>& work, int lane);
  void end();

  Mutex mutex_;
  Condition begun_, done_;
  const std::function<Status(int)>* work_ GLOO_BYPASS_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t operation_ GLOO_BYPASS_GUARDED_BY(mutex_) = 0;
  int running_ GLOO_BYPASS_GUARDED_BY(mutex_) = 0;
  bool ending_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  std::vector<Status> results_ GLOO_BYPASS_GUARDED_BY(mutex_);
  std::exception_ptr exception_ GLOO_BYPASS_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace gloo_bypass::collectives
