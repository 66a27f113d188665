// Link modes netdev and pci: datagrams in UDP over IPv4 over one Ethernet device, to any number of peers.
//
// netdev: a Linux interface through net_af_packet or net_af_xdp. The kernel has its address, MTU and routes; a kernel
// socket holds the UDP port (port_reservation.h) and wakes a sleeper. pci: a device of DPDK. The configuration gives
// address and gateway, this port answers ARP requests, and receive interrupts wake a sleeper if the driver has them;
// otherwise it polls, after 20 us at first and every 4 ms at last.
//
// UDP checksum: if both ends' devices compute and check it, they do; the session then needs no CRC of its own on short
// paths. Otherwise 0 (none). We compute the IPv4 header's checksum. The path to a peer opens once its next hop's MAC is
// known: until then transmit accepts nothing.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/wake_event.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/ethernet_device.h"
#include "transport/dpdk/kernel_interface.h"
#include "transport/dpdk/neighbour_table.h"
#include "transport/dpdk/packet_buffers.h"
#include "transport/dpdk/port_address.h"
#include "transport/dpdk/port_capture.h"
#include "transport/dpdk/port_reservation.h"
#include "transport/dpdk/self_ring.h"
#include "transport/dpdk/transmit_batch.h"
#include "transport/network/network_interface.h"

namespace gloo_bypass::dpdk {

// Requires a running EAL.
Result<std::unique_ptr<PacketPort>> makeNetdevPort(const TransportConfig& config);
Result<std::unique_ptr<PacketPort>> makePciPort(const TransportConfig& config);

// How an IpPort routes: by the kernel's routing table, or by a prefix and a gateway.
struct IpRouting {
  std::optional<KernelInterface> kernel;
  Ipv4Address prefixMask = 0;
  Ipv4Address gateway = 0;  // 0: none
  Result<Ipv4Address> nextHop(Ipv4Address ownIp, Ipv4Address destination) const;
};

struct IpPortParts {
  std::string description;  // "af_packet on eth0"
  MacAddress mac{};
  UdpAddress self;
  std::size_t mtu = 0;
  IpRouting routing;
  std::optional<PortReservation> reservation;  // for netdev
  std::unique_ptr<PacketBuffers> buffers;
  std::unique_ptr<EthernetDevice> device;
  std::unique_ptr<PortCapture> capture;  // null: none
};

class IpPort final : public PacketPort {
 public:
  explicit IpPort(IpPortParts parts);
  const Status& canBeWoken() const { return wakeEvent_.made(); }
  ~IpPort() override;

  std::vector<std::byte> localAddress() const override { return encodeAddress(parts_.self); }
  std::string describe() const override;
  // Netdev gathers: the packet socket's ring holds 4 MiB (ip_port_factory.cc). A NIC's has some hundred frames.
  PacketPortTraits traits() const override {
    return {.receiveBurst = TransmitBatch::kFrames,
            .gathers = parts_.reservation.has_value(),
            .doorbell = wakeEvent_.doorbell()};
  }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override;
  void closeLink(LinkId link) override;
  LinkProperties linkProperties(LinkId link) const override;
  std::string describeLink(LinkId link) const override;
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override;
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override;
  std::string trouble(LinkId link) const override;
  void onTick(TimePoint now) override;
  void armWakeup() override;
  void block(Duration timeout) override;
  void disarmWakeup() override;
  void wakePeers() override { sendBatch(); }
  void wake() override { wakeEvent_.wake(); }
  PortCounters counters() const override;
  void finishCapture() override;

 private:
  struct Link {
    LinkId id = 0;
    UdpAddress peer;
    Ipv4Address hop = 0;
    bool open = false;
    bool self = false;
    bool verified = false;  // datagrams carry a checksum; those with a wrong or no checksum are dropped
    bool reportDown = false;
    int unreachableSeen = 0;        // ICMP port unreachable since the last datagram
    std::optional<MacAddress> mac;  // as in `headers`
    std::uint64_t macVersion = 0;   // of the neighbour table at that lookup
    FrameTemplate headers;
    Error error;
  };

  void reportDown(PacketSink& sink);
  // True: handed up.
  bool deliver(PacketSink& sink, const rte_mbuf& mbuf, std::span<const std::byte> frame);
  bool deliverUdp(PacketSink& sink, const rte_mbuf& mbuf, const Ipv4Packet& packet);
  void handleIcmp(PacketSink& sink, const Ipv4Packet& packet);
  void failLink(Link& link, ErrorCode code, std::string message);
  void failLinksOfDeletedInterface();
  bool resolve(Link& link);
  LinkId add(Link link);
  UdpFlow flowTo(const MacAddress& mac, const UdpAddress& peer) const;
  Link& at(LinkId id);
  Link* findByPeer(Ipv4Address ip, std::uint16_t port);
  void sendArp(const ArpFrame& frame);
  void answerOrLearnArp(std::span<const std::byte> frame);
  // False: no room.
  bool append(const Link& link, const OutgoingDatagram& datagram);
  void sendBatch();

  IpPortParts parts_;
  std::optional<network::NetworkInterface> interface_;  // netdev's
  TransmitBatch batch_;
  std::atomic<bool> framesWait_{false};  // read by block(): the device refused some of the batch
  const std::size_t maxDatagramBytes_;
  NeighbourTable neighbours_;
  WakeEvent wakeEvent_;
  int interrupt_ = -1;                      // descriptor of the driver's receive interrupt; -1: none
  std::unordered_map<LinkId, Link> links_;  // open ones
  LinkId lastLink_ = 0;
  Link* lastFound_ = nullptr;
  LinkId selfLink_ = 0;
  SelfRing self_;
  bool anyDown_ = false;
  TimePoint now_{}, nextInterfaceCheck_{};
  PortCounters counters_;
  std::atomic<Duration::rep> pollIntervalNs_;  // for a sleeper without interrupt; see ip_port.cc
  std::atomic<bool> searching_{false};         // read by block(): ARP is under way
};

}  // namespace gloo_bypass::dpdk
