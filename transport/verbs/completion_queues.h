// The completion queues of one device, all on one completion channel. None can overflow: each connection reserves room
// for every work request that it can have outstanding. If the existing queues are reserved up to the device's bound,
// or the device's driver makes none larger (several do not), another is made; an unused queue is freed, except the
// last. Most processes have one.
//
// Owner: RailQueues. Thread: every method needs the progress engine's exclusive access; any thread may poll fd().
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/status.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

class CompletionQueues;

// Room in one of the queues. Destroy it after the queue pairs that use it, and after taking their completions.
class CompletionShare {
 public:
  CompletionShare() = default;
  CompletionShare(CompletionShare&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), queue_(other.queue_), count_(other.count_) {}
  CompletionShare& operator=(CompletionShare&&) = delete;
  ~CompletionShare();

  ibv_cq* queue() const { return queue_; }

 private:
  friend class CompletionQueues;
  CompletionShare(CompletionQueues* owner, ibv_cq* queue, unsigned count)
      : owner_(owner), queue_(queue), count_(count) {}

  CompletionQueues* owner_ = nullptr;
  ibv_cq* queue_ = nullptr;
  unsigned count_ = 0;
};

class CompletionQueues {
 public:
  // Starts with one queue. `api` and `context` must outlive the object. Errors: kUnavailable.
  static Result<std::unique_ptr<CompletionQueues>> make(const VerbsApi& api, ibv_context* context,
                                                        const std::string& deviceName, const ibv_device_attr& limits);
  ~CompletionQueues();
  CompletionQueues(const CompletionQueues&) = delete;
  CompletionQueues& operator=(const CompletionQueues&) = delete;

  // Reserves room for one connection. Errors: kExhausted if the device allows no more.
  Result<CompletionShare> reserve(unsigned count);

  // Appends completions, at most some rounds of each queue, in the order of each. True: there may be more.
  bool take(std::deque<ibv_wc>* completions);

  // Arms the channel for the next completion of any queue; consumeNotifications() reads the events.
  void requestNotification();
  void consumeNotifications();
  int fd() const { return channel_->fd; }

 private:
  friend class CompletionShare;
  struct Queue {
    ibv_cq* handle = nullptr;
    unsigned capacity = 0, reserved = 0;
    unsigned most = 0;            // to which it can grow
    unsigned unacknowledged = 0;  // of events; verbs requires acknowledging them before destroying the queue
  };

  CompletionQueues(const VerbsApi& api, ibv_context* context, std::string deviceName, const ibv_device_attr& limits);
  unsigned room() const { return static_cast<unsigned>(limits_.max_cqe); }
  Status add();
  Status grow(Queue& queue, unsigned count);
  void release(ibv_cq* handle, unsigned count);
  void destroy(Queue& queue);
  Queue& of(ibv_cq* handle);

  const VerbsApi& api_;
  ibv_context* const context_;
  const std::string deviceName_;
  const ibv_device_attr limits_;
  ibv_comp_channel* channel_ = nullptr;
  bool resizes_ = true;  // as far as the driver has not refused
  std::vector<Queue> queues_;
};

}  // namespace gloo_bypass::verbs
