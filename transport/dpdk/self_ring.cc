#include "transport/dpdk/self_ring.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/dpdk/frame.h"

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

std::size_t SelfRing::receive(PacketSink& sink, LinkId link, std::size_t most, PortCounters& counters) {
  std::size_t received = 0;
  for (; received < most && head_ != tail_; ++received, ++head_) {
    const Slot& slot = slots_[head_ % slots_.size()];
    ++counters.packetsReceived;
    counters.bytesReceived += slot.length + kFrameHeaderBytes;
    sink.onDatagram(link, std::span(slot.bytes).first(slot.length));
  }
  return received;
}

}  // namespace gloo_bypass::dpdk
