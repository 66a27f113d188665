// A mutex that clang's -Wthread-safety reads: GLOO_BYPASS_GUARDED_BY says what it guards, GLOO_BYPASS_REQUIRES which
// functions need it. Clang warns where either is touched without it; other compilers see a std::mutex.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define GLOO_BYPASS_ANNOTATE(annotation) __attribute__((annotation))
#else
#define GLOO_BYPASS_ANNOTATE(annotation)
#endif
#define GLOO_BYPASS_GUARDED_BY(mutex) GLOO_BYPASS_ANNOTATE(guarded_by(mutex))
#define GLOO_BYPASS_REQUIRES(mutex) GLOO_BYPASS_ANNOTATE(requires_capability(mutex))
#define GLOO_BYPASS_ACQUIRES(...) GLOO_BYPASS_ANNOTATE(acquire_capability(__VA_ARGS__))
#define GLOO_BYPASS_RELEASES(...) GLOO_BYPASS_ANNOTATE(release_capability(__VA_ARGS__))
#define GLOO_BYPASS_UNCHECKED GLOO_BYPASS_ANNOTATE(no_thread_safety_analysis)

namespace gloo_bypass {

class GLOO_BYPASS_ANNOTATE(capability("mutex")) Mutex {
 public:
  void lock() GLOO_BYPASS_ACQUIRES() { mutex_.lock(); }
  bool tryLock() GLOO_BYPASS_ANNOTATE(try_acquire_capability(true)) { return mutex_.try_lock(); }
  void unlock() GLOO_BYPASS_RELEASES() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class GLOO_BYPASS_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GLOO_BYPASS_ACQUIRES(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() GLOO_BYPASS_RELEASES() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// As std::condition_variable. Without predicates: the analysis does not look into lambdas, so the caller loops.
class Condition {
 public:
  // False: the time is over.
  template <typename Time>
  bool waitUntil(Mutex& mutex, Time end) GLOO_BYPASS_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool inTime = condition_.wait_until(lock, end) == std::cv_status::no_timeout;
    lock.release();
    return inTime;
  }
  template <typename Time>
  bool waitFor(Mutex& mutex, Time time) GLOO_BYPASS_REQUIRES(mutex) {
    return waitUntil(mutex, std::chrono::steady_clock::now() + time);
  }
  void notifyOne() { condition_.notify_one(); }
  void notifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace gloo_bypass
