#include "collectives/ordered_group.h"

#include <utility>

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
    waits = !tasks_.empty() || busy_;
  }
  if (waits) executor_->abort();  // nobody can wait for them any more
  begun_.notifyAll();
  if (thread_.joinable()) thread_.join();
}

Status OperationQueue::run(const Call& call, TimePoint deadline) {
  bool now = false;
  {
    MutexLock lock(mutex_);
    now = !busy_ && tasks_.empty();
    busy_ = busy_ || now;
  }
  if (now) {
    Status status = executor_->run(call, deadline);
    endTurn();
    return status;
  }
  // Something is under way before it.
  Status result;
  bool ended = false;
  start(call, deadline, [&](Status status) {
    MutexLock lock(mutex_);
    result = std::move(status);
    ended = true;
    done_.notifyAll();
  });
  MutexLock lock(mutex_);
  while (!ended) done_.waitFor(mutex_, kLong);
  return result;
}

void OperationQueue::start(const Call& call, TimePoint deadline, std::function<void(Status)> done) {
  Task task{call,
            {call.inputs.begin(), call.inputs.end()},
            {call.outputs.begin(), call.outputs.end()},
            deadline,
            std::move(done)};
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!thread_.joinable()) {
    const SignalsBlocked signals;
    thread_ = std::thread([this] { serve(); });
  }
  begun_.notifyOne();
}

void OperationQueue::endTurn() {
  MutexLock lock(mutex_);
  busy_ = false;
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
    task.call.inputs = task.inputs;
    task.call.outputs = task.outputs;
    Status status = executor_->run(task.call, task.deadline);
    endTurn();
    task.done(std::move(status));
  }
}

OrderedGroup::OrderedGroup(int rank, int size, std::chrono::milliseconds timeout, std::string carrier,
                           std::string description, std::unique_ptr<Executor> executor)
    : rank_(rank),
      size_(size),
      timeout_(timeout),
      carrier_(std::move(carrier)),
      description_(std::move(description)),
      forks_(forked_child::forks.load()),
      queue_(std::make_unique<OperationQueue>(std::move(executor))) {}

OrderedGroup::~OrderedGroup() {
  if (isInherited()) (void)queue_.release();
}

bool OrderedGroup::isInherited() const { return forks_ != forked_child::forks.load(std::memory_order_relaxed); }

Status OrderedGroup::check(const Call& call) const {
  if (isInherited()) {
    return {ErrorScope::kOperation, ErrorCode::kUnavailable,
            "this group belongs to the process that this one was forked from: make a new one"};
  }
  std::string fault = faultOf(call, rank_, size_);
  if (!fault.empty()) return {ErrorScope::kOperation, ErrorCode::kInvalidArgument, std::move(fault)};
  return {};
}

TimePoint OrderedGroup::deadlineAfter(std::chrono::milliseconds timeout) const {
  return monotonicNow() + (timeout.count() > 0 ? timeout : timeout_);
}

Status OrderedGroup::run(const Call& call, std::chrono::milliseconds timeout) {
  if (Status status = check(call); !status) return status;
  return queue_->run(call, deadlineAfter(timeout));
}

void OrderedGroup::start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done) {
  if (Status status = check(call); !status) {
    done(std::move(status));
  } else {
    queue_->start(call, deadlineAfter(timeout), std::move(done));
  }
}

void OrderedGroup::send(const Message&, std::function<void(Status, int peer)> done) {
  done({ErrorScope::kOperation, ErrorCode::kUnavailable, "send is not available"}, Message::kAnyPeer);
}

void OrderedGroup::receive(const Message&, std::function<void(Status, int peer)> done) {
  done({ErrorScope::kOperation, ErrorCode::kUnavailable, "receive is not available"}, Message::kAnyPeer);
}

void OrderedGroup::abort() noexcept {
  if (!isInherited()) queue_->abort();
}

}  // namespace gloo_bypass::collectives
