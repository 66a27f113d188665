#include "transport/verbs/receive_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/verbs/work_id.h"

namespace gloo_bypass::verbs {
namespace {

// Enough for 500 channels of 64 credits; a device may allow less.
constexpr unsigned kWantedReceives = 32768;
// A queue pair that goes in the middle of a frame takes its receive with it, also in good order.
constexpr unsigned kSpare = 16;
// A queue pair that was stopped, and whose completions were then taken, holds the receive of the frame in the middle of which it was
// stopped, and no other; one more for an adapter that takes receives ahead.
constexpr unsigned kLostWithQueuePair = 2;

}  // namespace

Result<std::unique_ptr<ReceiveSlots>> ReceiveSlots::make(const VerbsApi& api, RailQueues& queues,
                                                         std::size_t slotBytes) {
  std::unique_ptr<ReceiveSlots> made(new ReceiveSlots(api, queues, slotBytes));
  ibv_srq_init_attr init{};
  init.attr.max_wr = std::min(kWantedReceives, static_cast<unsigned>(std::max(1, queues.limits().max_srq_wr)));
  init.attr.max_sge = 1;
  made->capacity_ = init.attr.max_wr;
  made->queue_ = api.createSharedReceiveQueue(queues.domain(), &init);
  if (made->queue_ == nullptr) {
    return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                  fmt::format("RDMA device {}: no shared receive queue of {} entries: {}", queues.rail().deviceName,
                              made->capacity_, std::strerror(errno)));
  }
  return made;
}

ReceiveSlots::~ReceiveSlots() {
  if (queue_ != nullptr) (void)api_.destroySharedReceiveQueue(queue_);
}

Status ReceiveSlots::reserve(unsigned credits) {
  const unsigned wanted = reserved_ + lost_ + credits + kSpare;
  if (wanted > capacity_) {
    return Status(ErrorScope::kDevice, ErrorCode::kExhausted,
                  fmt::format("RDMA device {}: {} receives are the most, and {} are reserved by the connections there "
                              "are: lower GLOO_BYPASS_RDMA_CREDITS, or make fewer connections",
                              queues_.rail().deviceName, capacity_, reserved_ + lost_));
  }
  if (wanted > posted_) {
    if (Status status = queues_.reserveCompletions(wanted - posted_); !status) return status;
  }
  while (posted_ < wanted) {
    const auto slot = slots_.take();
    if (!slot) {
      queues_.unreserveCompletions(wanted - posted_);
      return slot.error();
    }
    ++posted_;
    repost(slot.value());
  }
  reserved_ += credits;
  return flush();
}

void ReceiveSlots::release(unsigned credits, bool inGoodOrder) {
  reserved_ -= credits;
  if (!inGoodOrder) lost_ += kLostWithQueuePair;
}

void ReceiveSlots::repost(std::uint32_t slot) {
  pending_[pendingCount_++] = slot;
  if (pendingCount_ == kBatch) (void)flush();
}

Status ReceiveSlots::flush() {
  if (pendingCount_ == 0) return {};
  std::array<ibv_recv_wr, kBatch> requests{};
  std::array<ibv_sge, kBatch> pieces{};
  for (unsigned i = 0; i < pendingCount_; ++i) {
    const auto bytes = slots_.bytes(pending_[i]);
    pieces[i] = {reinterpret_cast<std::uintptr_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()),
                 slots_.localKey(pending_[i])};
    requests[i].wr_id = receiveWorkId(pending_[i]);
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < pendingCount_ ? &requests[i + 1] : nullptr;
  }
  pendingCount_ = 0;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_srq_recv(queue_, requests.data(), &bad); error != 0) {
    return Status(
        ErrorScope::kDevice, ErrorCode::kInternal,
        fmt::format("RDMA device {}: receives cannot be posted: {}", queues_.rail().deviceName, std::strerror(error)));
  }
  return {};
}

}  // namespace gloo_bypass::verbs
