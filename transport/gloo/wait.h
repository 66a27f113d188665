// Waiting for a buffer's operations: what waitSend and waitRecv of bound and unbound buffers have in common.
#pragma once

#include <chrono>
#include <functional>

#include "transport/gloo/group.h"
#include "transport/gloo/operation.h"

namespace gloo_bypass::adapter {

enum class WaitOutcome { kPending, kCompleted, kAborted, kFailed, kNothingPosted };

// The predicate of ProgressEngine::waitUntil: looks with exclusive access, and takes what it finds in the same
// breath. Lives on the waiting thread's stack; true once, then for ever.
class Wait {
 public:
  Wait(Group& group, BufferState& buffer, Direction direction)
      : group_(group), buffer_(buffer), direction_(direction) {}

  // A bound buffer's: a wait for a send that was never posted is an error.
  Wait& mustBePosted() {
    mustBePosted_ = true;
    return *this;
  }

  bool operator()() {
    if (outcome_ == WaitOutcome::kPending) outcome_ = look();
    return outcome_ != WaitOutcome::kPending;
  }

  // Outside exclusive access. kPending: `deadline` passed.
  WaitOutcome until(TimePoint deadline, bool busyPoll) {
    group_.progress().waitUntil(std::ref(*this), deadline, busyPoll);
    return outcome_;
  }

  WaitOutcome outcome() const { return outcome_; }
  // kFailed. Tells the other ranks first, if they may wait for this one.
  [[noreturn]] void throwFailure();
  int rank() const { return rank_; }  // of kCompleted

 private:
  WaitOutcome look() {
    Progress& progress = buffer_.of(direction_);
    if (progress.completions == 0) {
      if (buffer_.failure) {
        failure_ = buffer_.failure;
        collectiveFailed_ = buffer_.collectiveFailed;
        return WaitOutcome::kFailed;
      }
      if (mustBePosted_ && progress.pending == 0) return WaitOutcome::kNothingPosted;
      if (!progress.abort) return WaitOutcome::kPending;
    }
    if (progress.abort) {
      progress.abort = false;
      return WaitOutcome::kAborted;
    }
    progress.completions--;
    rank_ = progress.rank;
    return WaitOutcome::kCompleted;
  }

  Group& group_;
  BufferState& buffer_;
  const Direction direction_;
  bool mustBePosted_ = false;
  WaitOutcome outcome_ = WaitOutcome::kPending;
  Failure failure_;
  bool collectiveFailed_ = false;
  int rank_ = -1;
};

// kNever for a timeout beyond all clocks.
TimePoint deadlineAfter(std::chrono::milliseconds timeout);

// Withdraws every operation of `buffer`. Any thread; when it returns, the buffer's memory is not touched any more.
// Sends that are on their way get up to `linger` to leave: what was sent arrives, as it would from a socket's buffer.
void withdraw(Group& group, BufferState& buffer, std::chrono::milliseconds linger) noexcept;

[[noreturn]] void throwIo(const Failure& failure);

// Runs `f` with exclusive access, and throws the failure that it returns, if it does.
template <typename F>
void exclusiveOrThrow(const Group& group, F&& f) {
  Failure failure;
  group.exclusive([&] { failure = f(); });
  if (failure) throwIo(failure);
}

}  // namespace gloo_bypass::adapter
