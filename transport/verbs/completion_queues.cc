#include "transport/verbs/completion_queues.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/check.h"
#include "transport/verbs/memory_limit.h"

namespace gloo_bypass::verbs {
namespace {

constexpr unsigned kFirstCompletions = 1024;
// Of a queue that stays as it is: some fifty connections' completions.
constexpr unsigned kFixedCompletions = 16 * kFirstCompletions;
constexpr unsigned kAcknowledgeAt = 64;
constexpr int kPollBatch = 16;
// Rounds for one queue before the next one, and before sessions have their turn.
constexpr int kPollRounds = 4;

Error exhausted(const std::string& message, int error = 0) {
  return {ErrorScope::kDevice, ErrorCode::kExhausted,
          message + ": lower GLOO_BYPASS_RDMA_CREDITS, or make fewer connections" + lockedMemoryHint(error)};
}

}  // namespace

CompletionShare::~CompletionShare() {
  if (owner_ != nullptr) owner_->release(queue_, count_);
}

CompletionQueues::CompletionQueues(const VerbsApi& api, ibv_context* context, std::string deviceName,
                                   const ibv_device_attr& limits)
    : api_(api), context_(context), deviceName_(std::move(deviceName)), limits_(limits) {}

Result<std::unique_ptr<CompletionQueues>> CompletionQueues::make(const VerbsApi& api, ibv_context* context,
                                                                 const std::string& deviceName,
                                                                 const ibv_device_attr& limits) {
  std::unique_ptr<CompletionQueues> made(new CompletionQueues(api, context, deviceName, limits));
  made->channel_ = api.createCompletionChannel(context);
  if (made->channel_ == nullptr) {
    return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                  fmt::format("RDMA device {}: no completion channel: {}", deviceName, std::strerror(errno)));
  }
  (void)fcntl(made->channel_->fd, F_SETFL, fcntl(made->channel_->fd, F_GETFL) | O_NONBLOCK);
  if (Status status = made->add(); !status) return status;
  return made;
}

CompletionQueues::~CompletionQueues() {
  if (channel_ == nullptr) return;
  consumeNotifications();
  for (Queue& queue : queues_) destroy(queue);
  (void)api_.destroyCompletionChannel(channel_);
}

CompletionQueues::Queue& CompletionQueues::of(ibv_cq* handle) {
  const auto found = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& q) { return q.handle == handle; });
  GLOO_BYPASS_CHECK(found != queues_.end());
  return *found;
}

Status CompletionQueues::add() {
  const unsigned capacity = std::min(resizes_ ? kFirstCompletions : kFixedCompletions, room());
  ibv_cq* const handle = api_.createCompletionQueue(context_, static_cast<int>(capacity), nullptr, channel_, 0);
  if (handle == nullptr) {
    const int error = errno;
    return exhausted(fmt::format("RDMA device {}: no completion queue beside the {} that this process has ({}); the "
                                 "device allows {} completion queues to all processes together",
                                 deviceName_, queues_.size(), std::strerror(error), limits_.max_cq),
                     error);
  }
  queues_.push_back({.handle = handle, .capacity = capacity, .most = resizes_ ? room() : capacity});
  return {};
}

Status CompletionQueues::grow(Queue& queue, unsigned count) {
  if (queue.reserved + count <= queue.capacity) return {};
  const unsigned wanted = std::min(room(), std::max(queue.reserved + count, 2 * queue.capacity));
  if (const int error = api_.resizeCompletionQueue(queue.handle, static_cast<int>(wanted)); error != 0) {
    return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                  fmt::format("RDMA device {}: a completion queue cannot grow to {} entries: {}", deviceName_, wanted,
                              std::strerror(error)));
  }
  queue.capacity = wanted;
  return {};
}

Result<CompletionShare> CompletionQueues::reserve(unsigned count) {
  if (count > room()) {
    return exhausted(fmt::format("RDMA device {} allows {} completions in a queue, and a connection needs {}",
                                 deviceName_, room(), count));
  }
  const auto fits = [&](const Queue& queue) { return count <= queue.most - queue.reserved; };
  for (;;) {
    auto queue = std::find_if(queues_.begin(), queues_.end(), fits);
    if (queue == queues_.end()) {
      if (Status status = add(); !status) return status;
      queue = std::prev(queues_.end());
    }
    if (Status status = grow(*queue, count); !status) {
      if (queue->reserved == 0) return status;
      resizes_ = false;
      queue->most = queue->capacity;
      continue;
    }
    queue->reserved += count;
    return CompletionShare(this, queue->handle, count);
  }
}

void CompletionQueues::release(ibv_cq* handle, unsigned count) {
  Queue& queue = of(handle);
  queue.reserved -= count;
  if (queue.reserved > 0 || queues_.size() == 1) return;
  // Its unread events go with it. Events of other queues stay: a thread may be about to sleep on them.
  destroy(queue);
  queues_.erase(queues_.begin() + (&queue - queues_.data()));
}

void CompletionQueues::destroy(Queue& queue) {
  if (queue.unacknowledged > 0) api_.ackCompletionEvents(queue.handle, queue.unacknowledged);
  (void)api_.destroyCompletionQueue(queue.handle);
}

bool CompletionQueues::take(std::deque<ibv_wc>* completions) {
  bool more = false;
  std::array<ibv_wc, kPollBatch> batch;
  for (const Queue& queue : queues_) {
    int count = 0;
    for (int round = 0; round < kPollRounds; ++round) {
      count = ibv_poll_cq(queue.handle, kPollBatch, batch.data());
      if (count > 0) completions->insert(completions->end(), batch.begin(), batch.begin() + count);
      if (count < kPollBatch) break;
    }
    more |= count == kPollBatch;
  }
  return more;
}

void CompletionQueues::requestNotification() {
  for (const Queue& queue : queues_) (void)ibv_req_notify_cq(queue.handle, 0);
}

void CompletionQueues::consumeNotifications() {
  ibv_cq* handle = nullptr;
  void* context = nullptr;
  while (api_.getCompletionEvent(channel_, &handle, &context) == 0) {
    Queue& queue = of(handle);
    if (++queue.unacknowledged < kAcknowledgeAt) continue;
    api_.ackCompletionEvents(handle, std::exchange(queue.unacknowledged, 0));
  }
}

}  // namespace gloo_bypass::verbs
