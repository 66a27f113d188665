#include "transport/verbs/receive_slots.h"

#include "transport/verbs/work_id.h"

namespace gloo_bypass::verbs {

ReceiveSlots::~ReceiveSlots() {
  for (const std::uint32_t slot : owned_) slots_.give(slot);
}

Status ReceiveSlots::post(QueuePair& pair, unsigned count) {
  while (owned_.size() < count) {
    const auto slot = slots_.take();
    if (!slot) return slot.error();
    owned_.push_back(slot.value());
    pending_[pendingCount_++] = slot.value();
    if (pendingCount_ < kBatch && owned_.size() < count) continue;
    if (Status status = flush(pair); !status) return status;
  }
  return {};
}

Status ReceiveSlots::repost(QueuePair& pair, std::uint32_t slot) {
  ++reposted_;
  pending_[pendingCount_++] = slot;
  return pendingCount_ < kBatch ? Status() : flush(pair);
}

Status ReceiveSlots::flush(QueuePair& pair) {
  if (pendingCount_ == 0) return {};
  std::array<ibv_recv_wr, kBatch> requests{};
  std::array<ibv_sge, kBatch> pieces{};
  for (unsigned i = 0; i < pendingCount_; ++i) {
    const auto bytes = slots_.bytes(pending_[i]);
    pieces[i] = {reinterpret_cast<std::uintptr_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()),
                 slots_.localKey(pending_[i])};
    requests[i].wr_id = workId(session_, WorkKind::kReceive, pending_[i]);
    requests[i].sg_list = &pieces[i];
    requests[i].num_sge = 1;
    requests[i].next = i + 1 < pendingCount_ ? &requests[i + 1] : nullptr;
  }
  pendingCount_ = 0;
  return pair.postReceives(requests.data());
}

}  // namespace gloo_bypass::verbs
