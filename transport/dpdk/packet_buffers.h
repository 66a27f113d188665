// The mbufs of one port. One owner at a time; pools are shared by all links of the port.
//
// Pools are of the "stack" kind and without per-lcore caches: a LIFO keeps the few buffers in use warm in L2, and any
// thread of the application may call in without being an EAL thread.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <memory>
#include <span>

#include "transport/base/status.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::dpdk {

struct MempoolFree {
  void operator()(rte_mempool* pool) const { rte_mempool_free(pool); }
};
using MempoolHandle = std::unique_ptr<rte_mempool, MempoolFree>;

// `count` buffers of this size each, headroom included. `what` is for the pool's name.
Result<MempoolHandle> makePacketPool(const char* what, unsigned count, std::size_t roomBytes);

class PacketBuffers {
 public:
  struct Sizes {
    std::size_t maxFrameBytes = 0;
    unsigned receiveBuffers = 0;
    unsigned transmitBuffers = 0;
    // Bytes of a transmit buffer after the headroom; at least maxFrameBytes unless payloads are always attached.
    std::size_t transmitRoomBytes = 0;
  };
  static Result<std::unique_ptr<PacketBuffers>> create(const Sizes& sizes);

  rte_mempool* receivePool() const { return receive_.get(); }

  // Builds a frame with the headers in the first segment. With `attach`, a large lent payload stays in place (a second
  // segment points into the user's buffer), so that the driver makes the only copy; the driver must be done with it
  // when its burst returns. nullptr: pool empty.
  rte_mbuf* build(const FrameTemplate& headers, const OutgoingDatagram& datagram, bool attach);
  // Copies a whole frame (ARP). nullptr: pool empty.
  rte_mbuf* copy(std::span<const std::byte> frame);

  PacketBuffers(const PacketBuffers&) = delete;
  PacketBuffers& operator=(const PacketBuffers&) = delete;

 private:
  PacketBuffers();

  MempoolHandle receive_, transmit_, attached_;
  rte_mbuf_ext_shared_info userMemory_{};  // never reaches 0: user buffers are not ours to free
};

}  // namespace gloo_bypass::dpdk
