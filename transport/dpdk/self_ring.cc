#include "transport/dpdk/self_ring.h"

#include <algorithm>

#include "transport/base/check.h"

namespace gloo_bypass::dpdk {

bool SelfRing::push(const OutgoingDatagram& datagram) {
  if (tail_ - head_ == slots_.size()) return false;
  Slot& slot = slots_[tail_ % slots_.size()];
  if (slot.bytes.empty()) slot.bytes.resize(slotBytes_);
  slot.length = datagram.header.size() + datagram.payload.size();
  GLOO_BYPASS_CHECK(slot.length <= slot.bytes.size());
  std::copy(datagram.header.begin(), datagram.header.end(), slot.bytes.begin());
  std::copy(datagram.payload.begin(), datagram.payload.end(),
            slot.bytes.begin() + static_cast<std::ptrdiff_t>(datagram.header.size()));
  ++tail_;
  return true;
}

std::span<const std::byte> SelfRing::front() const {
  const Slot& slot = slots_[head_ % slots_.size()];
  return std::span(slot.bytes).first(slot.length);
}

}  // namespace gloo_bypass::dpdk
