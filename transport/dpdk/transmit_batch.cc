#include "transport/dpdk/transmit_batch.h"

namespace gloo_bypass::dpdk {

void TransmitBatch::flush(EthernetDevice& device) {
  if (count_ == 0) return;
  const auto begin = frames_.begin(), end = begin + count_;
  auto kept = begin;
  for (auto frame = begin + device.transmit(frames_.data(), count_); frame != end; ++frame) {
    if (rte_pktmbuf_linearize(*frame) == 0) {
      *kept++ = *frame;
    } else {
      rte_pktmbuf_free(*frame);  // no room for its payload: lost, as any frame may be
    }
  }
  count_ = static_cast<std::uint16_t>(kept - begin);
}

}  // namespace gloo_bypass::dpdk
