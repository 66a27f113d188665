#include "transport/base/wake_event.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/base/check.h"

namespace gloo_bypass {

void WakeEvent::wake() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (armed_.load(std::memory_order_relaxed)) doorbell_.ring();
}

void WakeEvent::block(std::span<pollfd> others, Duration timeout) {
  GLOO_BYPASS_CHECK(others.size() <= kOthers);
  if (timeout <= Duration::zero()) return;
  std::array<pollfd, kOthers + 1> polled;
  polled[0] = {doorbell_.heardAt(), POLLIN, 0};
  std::copy(others.begin(), others.end(), polled.begin() + 1);
  timeout = std::min<Duration>(timeout, std::chrono::hours(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec limit{};
  limit.tv_sec = seconds.count();
  limit.tv_nsec = (timeout - seconds).count();
  int ready = ::ppoll(polled.data(), others.size() + 1, &limit, nullptr);
  if (ready < 0 && errno != EINTR) {  // a sandbox may refuse poll(); without sleep the thread keeps a core busy
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout);
    ready = ::poll(polled.data(), others.size() + 1, static_cast<int>(milliseconds.count()));
  }
  if (ready <= 0) return;
  std::copy_n(polled.begin() + 1, others.size(), others.begin());
  if (polled[0].revents != 0) doorbell_.quiet();
}

}  // namespace gloo_bypass
