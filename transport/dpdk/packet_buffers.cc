#include "transport/dpdk/packet_buffers.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_mempool.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/copy_part.h"

namespace gloo_bypass::dpdk {
namespace {

// Below this a copy into the header's segment is cheaper than a second segment.
constexpr std::size_t kAttachFromBytes = 1024;

void keepUserMemory(void*, void*) {}

std::string poolName(const char* what) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("gb-{}-{}", what, counter.fetch_add(1));
}

}  // namespace

Result<MempoolHandle> makePacketPool(const char* what, unsigned count, std::size_t roomBytes) {
  const std::string name = poolName(what);
  MempoolHandle pool(rte_pktmbuf_pool_create_by_ops(name.c_str(), count, 0, 0, static_cast<std::uint16_t>(roomBytes),
                                                    static_cast<int>(SOCKET_ID_ANY), "stack"));
  if (!pool) {
    const bool outOfMemory = rte_errno == ENOMEM;
    return Error{
        ErrorScope::kDevice, outOfMemory ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
        fmt::format("cannot make a pool of {} packet buffers of {} bytes: {}: {}", count, roomBytes,
                    rte_strerror(rte_errno),
                    outOfMemory ? "raise GLOO_BYPASS_MEMORY_MIB" : "is DPDK's driver librte_mempool_stack installed?")};
  }
  return pool;
}

PacketBuffers::PacketBuffers() {
  userMemory_.free_cb = keepUserMemory;
  rte_mbuf_ext_refcnt_set(&userMemory_, 1);
}

Result<std::unique_ptr<PacketBuffers>> PacketBuffers::create(const Sizes& sizes) {
  GLOO_BYPASS_CHECK(sizes.maxFrameBytes + RTE_PKTMBUF_HEADROOM <= 0xffff);
  GLOO_BYPASS_CHECK(sizes.transmitRoomBytes + RTE_PKTMBUF_HEADROOM <= 0xffff);
  std::unique_ptr<PacketBuffers> buffers(new PacketBuffers);
  auto receive = makePacketPool("rx", sizes.receiveBuffers, sizes.maxFrameBytes + RTE_PKTMBUF_HEADROOM);
  if (!receive) return receive.error();
  auto transmit = makePacketPool("tx", sizes.transmitBuffers, sizes.transmitRoomBytes + RTE_PKTMBUF_HEADROOM);
  if (!transmit) return transmit.error();
  auto attached = makePacketPool("ext", sizes.transmitBuffers, 0);
  if (!attached) return attached.error();
  buffers->receive_ = std::move(receive).value();
  buffers->transmit_ = std::move(transmit).value();
  buffers->attached_ = std::move(attached).value();
  return buffers;
}

rte_mbuf* PacketBuffers::build(const FrameTemplate& headers, const OutgoingDatagram& datagram, bool attach) {
  const std::size_t datagramBytes = datagram.header.size() + datagram.payload.size();
  rte_mbuf* head = rte_pktmbuf_alloc(transmit_.get());
  if (head == nullptr) return nullptr;
  auto* out = rte_pktmbuf_mtod(head, std::byte*);
  headers.write(out, datagramBytes);
  if (!datagram.header.empty()) std::memcpy(out + kFrameHeaderBytes, datagram.header.data(), datagram.header.size());
  std::size_t headBytes = kFrameHeaderBytes + datagram.header.size();
  if (!attach || !datagram.lent || datagram.payload.size() < kAttachFromBytes) {
    GLOO_BYPASS_CHECK(headBytes + datagram.payload.size() <= rte_pktmbuf_tailroom(head));
    copyPart<ColdEnd::kSource>(out + headBytes, datagram.payload);
    headBytes += datagram.payload.size();
  } else {
    rte_mbuf* tail = rte_pktmbuf_alloc(attached_.get());
    if (tail == nullptr) {
      rte_pktmbuf_free(head);
      return nullptr;
    }
    const auto payloadBytes = static_cast<std::uint16_t>(datagram.payload.size());
    rte_mbuf_ext_refcnt_update(&userMemory_, 1);
    rte_pktmbuf_attach_extbuf(tail, const_cast<std::byte*>(datagram.payload.data()), RTE_BAD_IOVA, payloadBytes,
                              &userMemory_);
    tail->data_off = 0;
    tail->data_len = payloadBytes;
    tail->pkt_len = payloadBytes;
    head->next = tail;
    head->nb_segs = 2;
  }
  head->data_len = static_cast<std::uint16_t>(headBytes);
  head->pkt_len = static_cast<std::uint32_t>(kFrameHeaderBytes + datagramBytes);
  if (headers.checksum() == UdpChecksum::kByDevice) {
    head->l2_len = kEthernetHeaderBytes;
    head->l3_len = kIpv4HeaderBytes;
    head->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM;
  }
  return head;
}

rte_mbuf* PacketBuffers::copy(std::span<const std::byte> frame) {
  rte_mbuf* mbuf = rte_pktmbuf_alloc(transmit_.get());
  if (mbuf == nullptr) return nullptr;
  GLOO_BYPASS_CHECK(frame.size() <= rte_pktmbuf_tailroom(mbuf));
  std::memcpy(rte_pktmbuf_mtod(mbuf, std::byte*), frame.data(), frame.size());
  mbuf->data_len = static_cast<std::uint16_t>(frame.size());
  mbuf->pkt_len = static_cast<std::uint32_t>(frame.size());
  return mbuf;
}

}  // namespace gloo_bypass::dpdk
