#include "collectives/messenger.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "transport/base/futex.h"
#include "transport/base/signals_blocked.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

// A peer that overwrites the word can delay a rank by this at most.
constexpr std::chrono::seconds kSleep{60};

Error aborted() { return {ErrorScope::kSession, ErrorCode::kCancelled, "this group was aborted here"}; }

}  // namespace

LateMessenger::LateMessenger(std::atomic<std::uint32_t>& wanted, Connect connect)
    : wanted_(wanted), connect_(std::move(connect)) {
  const SignalsBlocked signals;
  thread_ = std::thread([this] {
    attend();
    attended_ = true;
  });
}

LateMessenger::~LateMessenger() {
  ending_ = true;
  // The word does not change, so one wake could come just before the thread sleeps.
  while (!attended_) {
    wakeAll(wanted_);
    ::poll(nullptr, 0, 1);
  }
  thread_.join();
  fail(aborted());
}

void LateMessenger::post(Letter letter) {
  std::optional<Error> error;
  {
    MutexLock lock(mutex_);
    switch (state_) {
      case State::kIdle:
      case State::kConnecting:
        waiting_.push_back(std::move(letter));
        wanted_.store(1, std::memory_order_seq_cst);
        wakeAll(wanted_);
        return;
      case State::kFailed:
        error = error_;
        break;
      case State::kConnected:
        break;
    }
  }
  if (error) return letter.done(*error, Message::kAnyPeer);
  pass(std::move(letter));
}

void LateMessenger::pass(Letter letter) {
  if (letter.sends) {
    network_->send(letter.message, std::move(letter.done));
  } else {
    network_->receive(letter.message, std::move(letter.done));
  }
}

bool LateMessenger::hasLetters() {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

void LateMessenger::attend() {
  // Either the word is not 0 before the kernel looks, or its change wakes this thread. A peer may write 0 again: then
  // what this rank wants counts.
  while (!ending_ && wanted_.load(std::memory_order_seq_cst) == 0 && !hasLetters()) {
    sleepWhile(wanted_, 0, kSleep);
  }
  if (ending_) return;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kIdle) return;  // aborted
    state_ = State::kConnecting;
  }
  auto network = connect_([this] { return ending_ ? Status(aborted()) : Status(); });
  if (!network) return fail(network.error());
  network_ = std::move(network).value();
  while (flush()) {
  }
  bool failed = false;
  {
    MutexLock lock(mutex_);
    failed = state_ == State::kFailed;
  }
  if (failed) network_->abort();  // aborted while it passed letters on
}

// Passes on what waits, in order. False: nothing does, and messages go straight to the network from now on.
bool LateMessenger::flush() {
  std::vector<Letter> letters;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kConnecting) return false;
    letters.swap(waiting_);
    if (letters.empty()) {
      state_ = State::kConnected;
      changed_.notifyAll();
      return false;
    }
  }
  for (Letter& letter : letters) pass(std::move(letter));
  return true;
}

bool LateMessenger::wait(const std::function<bool()>& reached, TimePoint deadline) {
  {
    MutexLock lock(mutex_);
    while (state_ == State::kIdle || state_ == State::kConnecting || (state_ == State::kFailed && !allTold_)) {
      const Duration left = deadline - monotonicNow();
      if (left <= Duration::zero()) return false;
      changed_.waitFor(mutex_, std::min<Duration>(left, std::chrono::minutes(1)));
    }
    if (state_ == State::kFailed) return reached();
  }
  return network_->wait(reached, deadline);
}

void LateMessenger::fail(const Error& error) {
  std::vector<Letter> letters;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kFailed) return;
    state_ = State::kFailed;
    error_ = error;
    letters.swap(waiting_);
    changed_.notifyAll();
  }
  for (Letter& letter : letters) letter.done(error, Message::kAnyPeer);
  MutexLock lock(mutex_);
  allTold_ = true;
  changed_.notifyAll();
}

bool LateMessenger::isConnected() {
  MutexLock lock(mutex_);
  return state_ == State::kConnected;
}

void LateMessenger::abort() noexcept {
  if (isConnected()) network_->abort();
  fail(aborted());
}

// What has arrived over channels can still be received, as in a group that has no memory.
void LateMessenger::onGroupFailed(const Error& error) { isConnected() ? network_->end(error, 0) : fail(error); }

}  // namespace gloo_bypass::collectives
