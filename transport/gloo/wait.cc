#include "transport/gloo/wait.h"

#include <gloo/common/error.h>

namespace gloo_bypass::adapter {

TimePoint deadlineAfter(std::chrono::milliseconds timeout) {
  constexpr auto kForever = std::chrono::hours(24 * 365);
  if (timeout >= kForever) return kNever;
  const TimePoint now = monotonicNow();
  return timeout <= std::chrono::milliseconds::zero() ? now : now + timeout;
}

void withdraw(Group& group, BufferState& buffer, std::chrono::milliseconds linger) noexcept {
  // Nothing will touch the buffer: the last operation's end happened before this load.
  if (buffer.references.load(std::memory_order_acquire) == 0) return;
  bool sending = false;
  group.exclusive([&] { sending = buffer.of(Direction::kSend).pending > 0; });
  if (sending) {
    auto sent = [&] { return buffer.of(Direction::kSend).pending == 0; };
    (void)group.progress().waitUntil(std::ref(sent), deadlineAfter(linger));
  }
  group.exclusive([&] {
    while (Operation* operation = buffer.operations.next()) group.cancel(operation);
  });
}

void Wait::throwFailure() {
  if (collectiveFailed_) {
    group_.exclusive([this] { group_.collectiveFailed(failure_); });
  }
  throwIo(failure_);
}

void throwIo(const Failure& failure) { throw ::gloo::IoException(*failure); }

}  // namespace gloo_bypass::adapter
