#include "collectives/ordered_group.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "collectives/interruption.h"
#include "transport/base/forked_child.h"
#include "transport/base/signals_blocked.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::chrono::hours kLong{1};  // a wait here ends by notification; the bound only makes it look again

}  // namespace

OperationQueue::~OperationQueue() {
  bool waits = false;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    waits = !tasks_.empty() || (busy_ && !reports_);
  }
  if (waits) executor_.abort();  // nobody can wait for them any more
  begun_.notifyAll();
  if (thread_.joinable()) thread_.join();
}

Status OperationQueue::run(const Call& call, std::chrono::milliseconds timeout) {
  for (Task begun; takeBegun(begun); begun = {}) execute(std::move(begun));
  bool now = false;
  {
    MutexLock lock(mutex_);
    now = !busy_ && tasks_.empty();
    busy_ = busy_ || now;
    unannounced_ += now ? 1 : 0;
  }
  if (now) {
    Status status = perform(call, monotonicNow() + timeout);
    endTurn(/*announced=*/false);
    return status;
  }
  // Something is under way before it.
  Status result;
  bool ended = false;
  start(call, timeout, [&](Status status) {
    MutexLock lock(mutex_);
    result = std::move(status);
    ended = true;
    done_.notifyAll();
  });
  hasten();  // it may have begun by now, and nobody else ends it
  for (InterruptibleWait wait;;) {
    {
      MutexLock lock(mutex_);
      if (!ended) done_.waitFor(mutex_, InterruptibleWait::kAskEvery);
      if (ended) return result;
    }
    if (wait.isInterrupted(monotonicNow())) abort();
  }
}

// What begin() has begun waits for peers only: its end need not wait for the queue's thread.
bool OperationQueue::takeBegun(Task& task) {
  MutexLock lock(mutex_);
  if (busy_ || tasks_.empty() || !tasks_.front().begun) return false;
  task = std::move(tasks_.front());
  tasks_.pop_front();
  busy_ = true;
  return true;
}

void OperationQueue::start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done) {
  Task task{call,
            {call.inputs.begin(), call.inputs.end()},
            {call.outputs.begin(), call.outputs.end()},
            timeout,
            std::move(done)};
  MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    const SignalsBlocked signals;
    thread_ = std::thread([this] { serve(); });
  }
  task.begun = !busy_ && tasks_.empty() && executor_.begin(call);
  if (task.begun) task.begunAt = monotonicNow();
  const bool begun = task.begun;
  tasks_.push_back(std::move(task));
  if (begun || unannounced_ > 0) {
    ++unannounced_;
  } else {
    announceLast();
  }
  if (!begun) begun_.notifyOne();
}

void OperationQueue::announceLast() {
  Task& task = tasks_.back();
  task.call.inputs = task.inputs;
  task.call.outputs = task.outputs;
  task.announced = true;
  executor_.announce(task.call);
}

void OperationQueue::abort() noexcept {
  executor_.abort();
  hasten();
}

void OperationQueue::assist(const std::function<bool()>& reached) {
  while (!reached()) {
    Task task;
    {
      MutexLock lock(mutex_);
      if (busy_ || tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
    }
    execute(std::move(task));
  }
}

void OperationQueue::execute(Task task) {
  task.call.inputs = task.inputs;
  task.call.outputs = task.outputs;
  // The turn ends after the report, so that operations are reported in their order.
  Status status = perform(task.call, (task.begun ? task.begunAt : monotonicNow()) + task.timeout);
  {
    MutexLock lock(mutex_);
    reports_ = true;
  }
  task.done(std::move(status));
  endTurn(task.announced);
}

Status OperationQueue::perform(const Call& call, TimePoint deadline) {
  if (!broken_) return broken_;
  Status status;
  try {
    status = executor_.run(call, deadline);
  } catch (const std::exception& error) {
    executor_.abort();  // what it has done of the operation is unknown
    status = {ErrorScope::kSession, ErrorCode::kExhausted,
              fmt::format("the operation could not run: {}", error.what())};
    broken_ = status;
  }
  if (!status) onFailed_(status.error());
  return status;
}

void OperationQueue::endTurn(bool announced) {
  MutexLock lock(mutex_);
  busy_ = reports_ = false;
  unannounced_ -= announced ? 0 : 1;
  if (!tasks_.empty()) begun_.notifyOne();
}

void OperationQueue::serve() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (busy_ || (tasks_.empty() && !ending_)) begun_.waitFor(mutex_, kLong);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
    }
    execute(std::move(task));
  }
}

OrderedGroup::OrderedGroup(GroupPlace place, std::unique_ptr<Executor> executor, std::unique_ptr<Messenger> messenger)
    : place_(std::move(place)),
      forks_(forked_child::forks.load()),
      executor_(std::move(executor)),
      messenger_(std::move(messenger)),
      queue_(std::make_unique<OperationQueue>(*executor_,
                                              [this](const Error& error) { messenger_->onGroupFailed(error); })) {}

OrderedGroup::~OrderedGroup() {
  if (!isInherited()) return;
  (void)queue_.release();
  (void)messenger_.release();
  (void)executor_.release();
}

bool OrderedGroup::isInherited() const { return forks_ != forked_child::forks.load(std::memory_order_relaxed); }

Status OrderedGroup::checkOwner() const {
  if (!isInherited()) return {};
  return {ErrorScope::kOperation, ErrorCode::kUnavailable,
          "this group belongs to the process that this one was forked from: start processes with the spawn method"};
}

Status OrderedGroup::check(const Call& call) const {
  if (Status status = checkOwner(); !status) return status;
  std::string fault = faultOf(call, place_.rank, place_.size);
  if (!fault.empty()) return {ErrorScope::kOperation, ErrorCode::kInvalidArgument, std::move(fault)};
  return {};
}

Status OrderedGroup::check(const Message& message, bool sends) const {
  if (Status status = checkOwner(); !status) return status;
  const bool any = message.peer == Message::kAnyPeer && !sends;
  if (any || (message.peer >= 0 && message.peer < place_.size && message.peer != place_.rank)) return {};
  return {ErrorScope::kOperation, ErrorCode::kInvalidArgument,
          fmt::format("rank {} of {} cannot {} rank {}", place_.rank, place_.size, sends ? "send to" : "receive from",
                      message.peer)};
}

Status OrderedGroup::run(const Call& call, std::chrono::milliseconds timeout) {
  if (Status status = check(call); !status) return status;
  return queue_->run(call, timeoutOr(timeout));
}

void OrderedGroup::start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done) {
  if (Status status = check(call); !status) {
    done(std::move(status));
  } else {
    queue_->start(call, timeoutOr(timeout), std::move(done));
  }
}

void OrderedGroup::assist(const std::function<bool()>& reached) {
  if (!isInherited()) queue_->assist(reached);
}

void OrderedGroup::hasten() {
  if (!isInherited()) queue_->hasten();
}

void OrderedGroup::send(const Message& message, std::function<void(Status, int peer)> done) {
  if (Status status = check(message, true); !status) {
    done(std::move(status), message.peer);
  } else {
    messenger_->send(message, std::move(done));
  }
}

void OrderedGroup::receive(const Message& message, std::function<void(Status, int peer)> done) {
  if (Status status = check(message, false); !status) {
    done(std::move(status), message.peer);
  } else {
    messenger_->receive(message, std::move(done));
  }
}

bool OrderedGroup::wait(const std::function<bool()>& reached, TimePoint deadline) {
  return isInherited() ? reached() : messenger_->wait(reached, deadline);
}

void OrderedGroup::abort() noexcept {
  if (isInherited()) return;
  queue_->abort();
  messenger_->abort();
}

}  // namespace gloo_bypass::collectives
