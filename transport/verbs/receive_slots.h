// The receives of one channel: buffers posted to its queue pair. Its peer gets as many credits as there are receives,
// and never has more frames under way: the queue cannot run dry, and needs no flow control by the device.
//
// Owner: the session. Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/status.h"
#include "transport/verbs/rail_queues.h"
#include "transport/verbs/registered_slots.h"

namespace gloo_bypass::verbs {

class ReceiveSlots {
 public:
  // `session` names the session in completions. `slots` must outlive the object.
  ReceiveSlots(RegisteredSlots& slots, std::uint32_t session) : slots_(slots), session_(session) {}
  // Frees all slots. Destroy the queue pair first: a device may hold receives without ever completing them.
  ~ReceiveSlots();
  ReceiveSlots(const ReceiveSlots&) = delete;
  ReceiveSlots& operator=(const ReceiveSlots&) = delete;

  // Posts the first receives. Errors: kExhausted if no more memory can be locked.
  Status post(QueuePair& pair, unsigned count);

  std::span<const std::byte> received(std::uint32_t slot, std::size_t length) {
    return std::span<const std::byte>(slots_.bytes(slot)).first(std::min(length, slots_.slotBytes()));
  }
  // The slot's frame has been read. Posts it together with others, at the latest in flush().
  Status repost(QueuePair& pair, std::uint32_t slot);
  // Number of repost() calls so far, modulo 2^32; the session sends it to the peer after a flush().
  std::uint32_t reposted() const { return reposted_; }
  Status flush(QueuePair& pair);

 private:
  static constexpr unsigned kBatch = 16;

  RegisteredSlots& slots_;
  const std::uint32_t session_;
  std::vector<std::uint32_t> owned_;
  std::uint32_t reposted_ = 0;
  std::array<std::uint32_t, kBatch> pending_{};
  unsigned pendingCount_ = 0;
};

}  // namespace gloo_bypass::verbs
