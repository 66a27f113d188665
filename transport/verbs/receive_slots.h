// The shared receive queue and the buffers posted to it. Every open channel has its credits' worth of receives reserved, and its
// peer never has more frames under way than that: the queue cannot run dry, and needs no flow control of the device.
//
// Owner: the device. Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/status.h"
#include "transport/verbs/rail_queues.h"
#include "transport/verbs/registered_slots.h"

namespace gloo_bypass::verbs {

class ReceiveSlots {
 public:
  static Result<std::unique_ptr<ReceiveSlots>> make(const VerbsApi& api, RailQueues& queues, std::size_t slotBytes);
  ~ReceiveSlots();
  ReceiveSlots(const ReceiveSlots&) = delete;
  ReceiveSlots& operator=(const ReceiveSlots&) = delete;

  ibv_srq* queue() const { return queue_; }

  // Posts receives for one more channel. Errors: kExhausted when the device's limits, or locked memory, are used up.
  Status reserve(unsigned credits);
  // The channel is gone. `inGoodOrder`: its receives are all accounted for; else its queue pair was stopped and its completions
  // were taken before it was destroyed: the few that the device may have kept are not counted on any more.
  void release(unsigned credits, bool inGoodOrder);

  std::span<const std::byte> received(std::uint32_t slot, std::size_t length) {
    return std::span<const std::byte>(slots_.bytes(slot)).first(length);
  }
  // The slot's frame has been read. Posted with others, at the latest by flush().
  void repost(std::uint32_t slot);
  // Before the peers are told of the credits.
  Status flush();

  std::size_t registeredBytes() const { return slots_.registeredBytes(); }
  std::size_t slotBytes() const { return slots_.slotBytes(); }

 private:
  ReceiveSlots(const VerbsApi& api, RailQueues& queues, std::size_t slotBytes)
      : api_(api), queues_(queues), slots_(api, queues.domain(), slotBytes) {}

  static constexpr unsigned kBatch = 16;

  const VerbsApi& api_;
  RailQueues& queues_;
  RegisteredSlots slots_;
  ibv_srq* queue_ = nullptr;
  unsigned capacity_ = 0;
  unsigned posted_ = 0;    // receives in the queue or in a channel's hands, lost ones included
  unsigned reserved_ = 0;  // promised to peers
  unsigned lost_ = 0;
  std::array<std::uint32_t, kBatch> pending_{};
  unsigned pendingCount_ = 0;
};

}  // namespace gloo_bypass::verbs
