// A Group over one Executor: keeps operations in the order in which they were started, on the caller's thread where
// nothing is under way before them, else on the group's own.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/executor.h"
#include "collectives/group.h"
#include "collectives/messenger.h"
#include "transport/base/mutex.h"

namespace gloo_bypass::collectives {

// Operations in order. Its thread exists in one process only: a forked child must not destroy it.
class OperationQueue {
 public:
  // `onFailed` hears of each operation's error before it is reported, on the operation's thread. `executor` must
  // outlive the queue.
  OperationQueue(Executor& executor, std::function<void(const Error&)> onFailed)
      : executor_(executor), onFailed_(std::move(onFailed)) {}
  // What still waits is aborted.
  ~OperationQueue();

  // `timeout` counts from its turn: what waits behind others is not late.
  Status run(const Call& call, std::chrono::milliseconds timeout);
  // A small operation with nothing before it begins here (Executor::begin), and no thread wakes up for it: the one that
  // waits for it ends it, or the next operation, or hasten(). Its timeout counts from here.
  void start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done);
  // Runs what was started and has not ended, on this thread, until `reached` or nothing is left that it could run.
  void assist(const std::function<bool()>& reached);
  // Wakes the queue's thread.
  void hasten() { begun_.notifyOne(); }
  void abort() noexcept;

 private:
  struct Task {
    Call call;  // with the spans of the vectors below, once it runs
    std::vector<ConstBlock> inputs;
    std::vector<Block> outputs;
    std::chrono::milliseconds timeout;
    std::function<void(Status)> done;
    bool begun = false;
    TimePoint begunAt{};
    bool announced = false;  // to the executor
  };

  bool takeBegun(Task& task);
  Status perform(const Call& call, TimePoint deadline);
  void execute(Task task);
  void endTurn(bool announced);
  void announceLast() GLOO_BYPASS_REQUIRES(mutex_);
  void serve();

  Executor& executor_;
  const std::function<void(const Error&)> onFailed_;
  Mutex mutex_;
  Condition begun_, done_;
  bool busy_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;     // an operation runs, on whichever thread
  bool reports_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;  // it has ended, and its report is under way
  bool ending_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ GLOO_BYPASS_GUARDED_BY(mutex_);
  // Operations that were not announced and have not ended: what follows them is not announced either, since the
  // executor would take it for the next.
  std::size_t unannounced_ GLOO_BYPASS_GUARDED_BY(mutex_) = 0;
  Status broken_;       // an operation has thrown: the executor cannot be used any more. Whose turn it is reads it
  std::thread thread_;  // from the first start() on
};

// What OrderedGroup says about itself.
struct GroupPlace {
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{};  // of a call without its own
  std::vector<std::string> carriers;
  std::string description;
};

class OrderedGroup final : public Group {
 public:
  OrderedGroup(GroupPlace place, std::unique_ptr<Executor> executor, std::unique_ptr<Messenger> messenger);
  ~OrderedGroup() override;

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  Status run(const Call& call, std::chrono::milliseconds timeout) override;
  void start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done) override;
  void assist(const std::function<bool()>& reached) override;
  void hasten() override;
  void send(const Message& message, std::function<void(Status, int peer)> done) override;
  void receive(const Message& message, std::function<void(Status, int peer)> done) override;
  bool wait(const std::function<bool()>& reached, TimePoint deadline) override;
  void abort() noexcept override;
  std::vector<std::string> carriers() const override { return place_.carriers; }
  std::string describe() const override { return place_.description; }

 private:
  bool isInherited() const;
  Status checkOwner() const;
  Status check(const Call& call) const;
  Status check(const Message& message, bool sends) const;
  std::chrono::milliseconds timeoutOr(std::chrono::milliseconds timeout) const {
    return timeout.count() > 0 ? timeout : place_.timeout;
  }

  const GroupPlace place_;
  const int forks_;  // of this process when it was made
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Messenger> messenger_;
  std::unique_ptr<OperationQueue> queue_;
};

}  // namespace gloo_bypass::collectives
