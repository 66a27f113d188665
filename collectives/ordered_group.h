// A Group over one Executor: keeps operations in the order in which they were started, on the caller's thread where
// nothing is under way before them, else on the group's own.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/executor.h"
#include "collectives/group.h"
#include "transport/base/mutex.h"

namespace gloo_bypass::collectives {

// Operations in order. Its threads, and those of its executor, exist in one process only: a forked child must not
// destroy it.
class OperationQueue {
 public:
  explicit OperationQueue(std::unique_ptr<Executor> executor) : executor_(std::move(executor)) {}
  // What still waits is aborted.
  ~OperationQueue();

  Status run(const Call& call, TimePoint deadline);
  void start(const Call& call, TimePoint deadline, std::function<void(Status)> done);
  void abort() noexcept { executor_->abort(); }

 private:
  struct Task {
    Call call;  // with the spans of the vectors below, once it runs
    std::vector<ConstBlock> inputs;
    std::vector<Block> outputs;
    TimePoint deadline;
    std::function<void(Status)> done;
  };

  void endTurn();
  void serve();

  const std::unique_ptr<Executor> executor_;
  Mutex mutex_;
  Condition begun_, done_;
  bool busy_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;  // an operation runs, on whichever thread
  bool ending_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ GLOO_BYPASS_GUARDED_BY(mutex_);
  std::thread thread_;  // from the first start() on
};

class OrderedGroup final : public Group {
 public:
  OrderedGroup(int rank, int size, std::chrono::milliseconds timeout, std::string carrier, std::string description,
               std::unique_ptr<Executor> executor);
  ~OrderedGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status run(const Call& call, std::chrono::milliseconds timeout) override;
  void start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done) override;
  void send(const Message& message, std::function<void(Status, int peer)> done) override;
  void receive(const Message& message, std::function<void(Status, int peer)> done) override;
  void abort() noexcept override;
  std::string carrier() const override { return carrier_; }
  std::string describe() const override { return description_; }

 private:
  Status check(const Call& call) const;
  bool isInherited() const;
  TimePoint deadlineAfter(std::chrono::milliseconds timeout) const;

  const int rank_, size_;
  const std::chrono::milliseconds timeout_;
  const std::string carrier_, description_;
  const int forks_;  // of this process when it was made
  std::unique_ptr<OperationQueue> queue_;
};

}  // namespace gloo_bypass::collectives
