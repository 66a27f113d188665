// Sleeps on a word that processes may share, and wakes who sleeps there (futex(2)). Any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "transport/base/time.h"

namespace gloo_bypass {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Until a wake, at most for `timeout`; returns at once if the word is not `value`. May also return for no reason.
inline void sleepWhile(std::atomic<std::uint32_t>& word, std::uint32_t value, Duration timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec relative{};
  relative.tv_sec = seconds.count();
  relative.tv_nsec = (timeout - seconds).count();
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &relative, nullptr, 0);
}

inline void wakeAll(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gloo_bypass
