// Frames that wait for the device. It takes them in bursts, since a burst costs it little more than one frame. One
// owner.
#pragma once

#include <array>
#include <cstdint>

#include "transport/dpdk/ethernet_device.h"

namespace gloo_bypass::dpdk {

class TransmitBatch {
 public:
  // A session's turn (LinkProperties). Larger bursts gain nothing more, and at an MTU of 9000 they form a queue that
  // congestion control takes for a slow path.
  static constexpr std::uint16_t kFrames = 16;

  TransmitBatch() = default;
  ~TransmitBatch() { rte_pktmbuf_free_bulk(frames_.data(), count_); }
  TransmitBatch(const TransmitBatch&) = delete;
  TransmitBatch& operator=(const TransmitBatch&) = delete;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kFrames; }
  // Takes ownership; requires that the batch is not full.
  void append(rte_mbuf* frame) { frames_[count_++] = frame; }
  // Frames that the device does not accept stay, and no longer point into users' buffers.
  void flush(EthernetDevice& device);

 private:
  std::array<rte_mbuf*, kFrames> frames_{};
  std::uint16_t count_ = 0;
};

}  // namespace gloo_bypass::dpdk
