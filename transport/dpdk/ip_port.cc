#include "transport/dpdk/ip_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/base/check.h"
#include "transport/progress/spin_policy.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::size_t kSelfSlots = 64;
// Without an interrupt a sleeper polls: soon after traffic, then ever less often, so that it is late by at most a
// quarter of the time it has waited. A look costs up to 20 us on a busy machine: 250 a second stay under 1 % of a core,
// and the 24 until then are half a millisecond.
constexpr Duration kFirstPollInterval = std::chrono::microseconds(20);
constexpr Duration kLastPollInterval = std::chrono::milliseconds(4);
// Otherwise two ranks that sleep in turn keep each other asleep: neither has a wait that is worth polling for.
constexpr Duration kTimerSlack = std::chrono::microseconds(50);  // the kernel's, of a sleep: PR_SET_TIMERSLACK
static_assert(kFirstPollInterval + kTimerSlack < SpinPolicy::kWorth);
// While ARP is under way its timers must run.
constexpr Duration kSearchInterval = std::chrono::milliseconds(10);
// Bytes of a frame before the payload.
constexpr std::size_t kHeadersBytes = kFrameHeaderBytes + wire::kCommonHeaderBytes;
// A device does not report when it has room again.
constexpr Duration kRetryFullDevice = std::chrono::microseconds(50);
// Netdev: the packet socket of a deleted interface looks like one without traffic.
constexpr Duration kInterfaceCheckInterval = std::chrono::seconds(1);
// So many ICMP port unreachable in a row, without a datagram from that peer: a single one may be forged or late.
constexpr int kUnreachableLimit = 2;
// receive() takes so many frames at most, others' included, for each datagram that it may hand up.
constexpr std::size_t kMostFramesPerDatagram = 4;

// Whether a datagram with a checksum arrived intact: the device's verdict, or our own computation if it has none (for
// an IP header with options, say).
bool isIntact(const rte_mbuf& mbuf, const Ipv4Packet& packet) {
  switch (mbuf.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) {
    case RTE_MBUF_F_RX_L4_CKSUM_GOOD:
    case RTE_MBUF_F_RX_L4_CKSUM_NONE:  // "not correct in the packet data, but the integrity of the L4 data is verified"
      return true;
    case RTE_MBUF_F_RX_L4_CKSUM_BAD:
      return false;
    default:
      break;
  }
  return hasRightUdpChecksum(packet);
}

}  // namespace

Result<Ipv4Address> IpRouting::nextHop(Ipv4Address ownIp, Ipv4Address destination) const {
  if (kernel) return dpdk::nextHop(*kernel, destination);
  if ((destination & prefixMask) == (ownIp & prefixMask)) return destination;
  if (gateway != 0) return gateway;
  return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
               fmt::format("{} is outside this port's prefix and there is no gateway: set GLOO_BYPASS_GATEWAY",
                           toString(destination))};
}

IpPort::IpPort(IpPortParts parts)
    : parts_(std::move(parts)),
      maxDatagramBytes_(parts_.mtu - kMtuOverheadBytes),
      neighbours_(parts_.mac, parts_.self.ip, !parts_.routing.kernel),
      self_(kSelfSlots, maxDatagramBytes_),
      pollIntervalNs_(kFirstPollInterval.count()) {
  if (const auto& kernel = parts_.routing.kernel; kernel && parts_.reservation) {
    interface_ = {kernel->index, kernel->name};
  }
  if (parts_.device->hasReceiveInterrupts()) interrupt_ = rte_eth_dev_rx_intr_ctl_q_get_fd(parts_.device->port(), 0);
}

IpPort::~IpPort() = default;

std::string IpPort::describe() const {
  return fmt::format("{} {}:{}", parts_.description, toString(parts_.self.ip), parts_.self.port);
}

Result<LinkId> IpPort::openLink(std::span<const std::byte> remoteAddress) {
  auto decoded = decodeUdpAddress(remoteAddress);
  if (!decoded) return decoded.error();
  const UdpAddress peer = decoded.value();
  if (peer.ip == parts_.self.ip && peer.port == parts_.self.port) {
    if (selfLink_ == 0) {
      selfLink_ =
          add(Link{.peer = peer, .open = true, .self = true, .headers = FrameTemplate(flowTo(parts_.mac, peer))});
    }
    return selfLink_;
  }
  if (const Link* known = findByPeer(peer.ip, peer.port)) {
    return known->id;
  }
  const auto hop = parts_.routing.nextHop(parts_.self.ip, peer.ip);
  if (!hop) return hop.error();
  neighbours_.want(hop.value());
  searching_.store(true, std::memory_order_relaxed);
  return add(Link{.peer = peer, .hop = hop.value(), .open = true, .verified = parts_.self.checksums && peer.checksums});
}

LinkId IpPort::add(Link link) {
  link.id = ++lastLink_;
  links_.emplace(lastLink_, std::move(link));
  return lastLink_;
}

UdpFlow IpPort::flowTo(const MacAddress& mac, const UdpAddress& peer) const {
  return {.sourceMac = parts_.mac,
          .destinationMac = mac,
          .sourceIp = parts_.self.ip,
          .destinationIp = peer.ip,
          .sourcePort = parts_.self.port,
          .destinationPort = peer.port};
}

IpPort::Link& IpPort::at(LinkId id) {
  const auto found = links_.find(id);
  GLOO_BYPASS_CHECK(found != links_.end());
  return found->second;
}

void IpPort::closeLink(LinkId id) {
  if (lastFound_ == &at(id)) lastFound_ = nullptr;
  links_.erase(id);
  if (id == selfLink_) selfLink_ = 0;
}

LinkProperties IpPort::linkProperties(LinkId id) const {
  return LinkProperties{.maxDatagramBytes = maxDatagramBytes_,
                        .lossless = id == selfLink_,
                        .verified = links_.at(id).verified,
                        .local = id == selfLink_};
}

std::string IpPort::describeLink(LinkId id) const {
  const UdpAddress& peer = links_.at(id).peer;
  return fmt::format("UDP from port {} of {}, {}, to {}:{}", parts_.self.port, toString(parts_.self.ip),
                     parts_.description, toString(peer.ip), peer.port);
}

IpPort::Link* IpPort::findByPeer(Ipv4Address ip, std::uint16_t port) {
  const auto matches = [&](const Link& link) {
    return link.open && !link.self && link.peer.ip == ip && link.peer.port == port;
  };
  if (lastFound_ != nullptr && matches(*lastFound_)) return lastFound_;
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& item) { return matches(item.second); });
  return found == links_.end() ? nullptr : lastFound_ = &found->second;
}

// Sending ---------------------------------------------------------------------------------------

bool IpPort::resolve(Link& link) {
  if (link.macVersion == neighbours_.version()) return link.mac.has_value();
  link.macVersion = neighbours_.version();
  const auto mac = neighbours_.find(link.hop);
  if (!mac) return false;
  if (link.mac != mac) {
    link.mac = mac;
    link.headers = FrameTemplate(flowTo(*mac, link.peer), link.verified ? UdpChecksum::kByDevice : UdpChecksum::kNone);
  }
  return true;
}

std::size_t IpPort::transmit(LinkId id, std::span<const OutgoingDatagram> datagrams) {
  Link& link = at(id);
  if (!link.open || (!link.self && !resolve(link))) return 0;
  std::size_t sent = 0;
  for (; sent < datagrams.size(); ++sent) {
    const OutgoingDatagram& datagram = datagrams[sent];
    const std::size_t bytes = datagram.header.size() + datagram.payload.size();
    GLOO_BYPASS_CHECK(bytes <= maxDatagramBytes_);
    if (link.self ? !self_.push(datagram) : !append(link, datagram)) {
      ++counters_.transmitFull;
      break;
    }
    ++counters_.packetsSent;
    counters_.bytesSent += kFrameHeaderBytes + bytes;
    if (parts_.capture) parts_.capture->sent(link.headers.written(bytes), datagram);
  }
  if (link.self && sent > 0) wake();
  return sent;
}

bool IpPort::append(const Link& link, const OutgoingDatagram& datagram) {
  if (batch_.full()) sendBatch();
  if (batch_.full()) return false;
  rte_mbuf* const frame = parts_.buffers->build(link.headers, datagram, parts_.device->copiesSegments());
  if (frame == nullptr) return false;  // the driver's ring holds all
  batch_.append(frame);
  return true;
}

void IpPort::sendBatch() {
  batch_.flush(*parts_.device);
  framesWait_.store(!batch_.empty(), std::memory_order_relaxed);
}

void IpPort::sendArp(const ArpFrame& frame) {
  rte_mbuf* mbuf = parts_.buffers->copy(frame);
  if (mbuf == nullptr) return;
  if (parts_.device->transmit(&mbuf, 1) == 0) {
    rte_pktmbuf_free(mbuf);
  } else if (parts_.capture) {
    parts_.capture->sent(frame);
  }
}

// Receiving -------------------------------------------------------------------------------------

std::size_t IpPort::receive(PacketSink& sink, std::size_t maxDatagrams) {
  if (!batch_.empty()) sendBatch();  // the device may have room again
  if (anyDown_) reportDown(sink);
  std::size_t received = self_.receive(sink, selfLink_, maxDatagrams, counters_);
  // Foreign frames count too: a flood of them must not keep timers and waiters from their turn.
  for (std::size_t taken = 0; received < maxDatagrams && taken < kMostFramesPerDatagram * maxDatagrams;) {
    std::array<rte_mbuf*, TransmitBatch::kFrames> mbufs;
    const auto wanted = static_cast<std::uint16_t>(std::min(maxDatagrams - received, mbufs.size()));
    const std::uint16_t count = parts_.device->receive(mbufs.data(), wanted);
    taken += count;
    if (count > 0) sink.onArrivals();
    // The other core has just written them: fetch all of a burst at once.
    for (std::uint16_t i = 0; i < count; ++i) {
      for (std::size_t at = 0; at < kHeadersBytes; at += RTE_CACHE_LINE_SIZE) {
        rte_prefetch0(rte_pktmbuf_mtod_offset(mbufs[i], const std::byte*, at));
      }
    }
    for (std::uint16_t i = 0; i < count; ++i) {
      const std::span frame(rte_pktmbuf_mtod(mbufs[i], const std::byte*), mbufs[i]->data_len);
      if (parts_.capture) parts_.capture->received(frame, mbufs[i]->pkt_len);
      if (mbufs[i]->nb_segs != 1) {
        ++counters_.droppedMalformed;
      } else if (deliver(sink, *mbufs[i], frame)) {
        ++received;
        pollIntervalNs_.store(kFirstPollInterval.count(), std::memory_order_relaxed);
      }
    }
    if (count > 0) rte_pktmbuf_free_bulk(mbufs.data(), count);
    if (count < wanted) break;
  }
  return received;
}

void IpPort::reportDown(PacketSink& sink) {
  anyDown_ = false;
  for (auto& [id, link] : links_) {
    if (std::exchange(link.reportDown, false)) sink.onLinkDown(id, link.error);
  }
}

bool IpPort::deliver(PacketSink& sink, const rte_mbuf& mbuf, std::span<const std::byte> frame) {
  if (frame.size() >= kEthernetHeaderBytes && readBe16(&frame[12]) == kEtherTypeArp) {
    answerOrLearnArp(frame);
    return false;
  }
  const auto packet = parseIpv4Frame(frame);
  if (!packet) {
    ++counters_.droppedMalformed;
    return false;
  }
  if (packet->destinationIp != parts_.self.ip) {
    ++counters_.droppedForeign;
    return false;
  }
  if (packet->protocol == kProtocolIcmp) {
    handleIcmp(sink, *packet);
    return false;
  }
  if (packet->protocol != kProtocolUdp) {
    ++counters_.droppedForeign;
    return false;
  }
  if (!deliverUdp(sink, mbuf, *packet)) return false;
  ++counters_.packetsReceived;
  counters_.bytesReceived += frame.size();
  return true;
}

bool IpPort::deliverUdp(PacketSink& sink, const rte_mbuf& mbuf, const Ipv4Packet& packet) {
  const auto udp = parseUdp(packet.payload);
  Link* const link =
      udp && udp->destinationPort == parts_.self.port ? findByPeer(packet.sourceIp, udp->sourcePort) : nullptr;
  if (link == nullptr) {
    ++counters_.droppedForeign;
    if (udp && udp->destinationPort == parts_.self.port) sink.onStranger();
    return false;
  }
  if (link->verified && !isIntact(mbuf, packet)) {
    ++counters_.droppedMalformed;
    return false;
  }
  link->unreachableSeen = 0;
  if (!link->mac) neighbours_.learn(link->hop, packet.sourceMac, now_);
  sink.onDatagram(link->id, udp->data);
  return true;
}

void IpPort::answerOrLearnArp(std::span<const std::byte> frame) {
  if (const auto reply = neighbours_.handle(frame, now_)) sendArp(*reply);
  searching_.store(neighbours_.searching(), std::memory_order_relaxed);
}

// The peer's kernel reports a closed port, or a router that a datagram was too large. Anyone can guess addresses and
// ports, but no session id: ignore a message that quotes none of ours.
void IpPort::handleIcmp(PacketSink& sink, const Ipv4Packet& packet) {
  const auto told = parseNotDelivered(packet);
  if (!told || told->sourceIp != parts_.self.ip || told->sourcePort != parts_.self.port) return;
  Link* const link = findByPeer(told->destinationIp, told->destinationPort);
  if (link == nullptr || !sink.sentBySession(link->id, told->data)) return;
  if (!told->portUnreachable) {
    const std::size_t mtu = told->mtu;
    return sink.onDatagramTooLarge(link->id, mtu - std::min(mtu, kMtuOverheadBytes) + 1);
  }
  if (!sink.onPortUnreachable(link->id) || ++link->unreachableSeen < kUnreachableLimit) return;
  failLink(*link, ErrorCode::kPeerVanished,
           "its machine says that the port is closed: the process ended, or was killed");
}

void IpPort::failLink(Link& link, ErrorCode code, std::string message) {
  link.error =
      Error{ErrorScope::kSession, code, fmt::format("{}:{}: {}", toString(link.peer.ip), link.peer.port, message)};
  link.open = false;
  link.reportDown = true;
  anyDown_ = true;
}

// Time and sleep --------------------------------------------------------------------------------

void IpPort::onTick(TimePoint now) {
  now_ = now;
  if (parts_.capture) parts_.capture->onTick();
  for (const ArpFrame& request : neighbours_.tick(now)) sendArp(request);
  if (now >= nextInterfaceCheck_) {
    nextInterfaceCheck_ = now + kInterfaceCheckInterval;
    failLinksOfDeletedInterface();
  }
  if (!searching_.load(std::memory_order_relaxed)) return;
  for (auto& [id, link] : links_) {
    if (link.open && !link.self && neighbours_.failed(link.hop)) {
      failLink(link, ErrorCode::kPeerVanished, fmt::format("no answer to ARP for next hop {}", toString(link.hop)));
    }
  }
  searching_.store(neighbours_.searching(), std::memory_order_relaxed);
}

void IpPort::failLinksOfDeletedInterface() {
  if (!interface_ || !interface_->isDeleted(parts_.reservation->fd())) return;
  for (auto& [id, link] : links_) {
    if (link.open && !link.self) {
      failLink(link, ErrorCode::kUnavailable, interface_->trouble(parts_.reservation->fd()));
    }
  }
}

std::string IpPort::trouble(LinkId id) const {
  const auto link = links_.find(id);
  if (link == links_.end() || link->second.self || !interface_) return {};
  return interface_->trouble(parts_.reservation->fd());
}

void IpPort::armWakeup() {
  wakeEvent_.arm();
  if (parts_.reservation) parts_.reservation->arm();
  if (interrupt_ >= 0) (void)rte_eth_dev_rx_intr_enable(parts_.device->port(), 0);
}

void IpPort::block(Duration timeout) {
  if (timeout <= Duration::zero()) return;
  pollfd arrival{parts_.reservation ? parts_.reservation->fd() : interrupt_, POLLIN, 0};
  if (arrival.fd < 0) {
    const Duration interval(pollIntervalNs_.load(std::memory_order_relaxed));
    timeout = std::min(timeout, interval);
    pollIntervalNs_.store(std::min(interval + interval / 4, kLastPollInterval).count(), std::memory_order_relaxed);
  }
  if (searching_.load(std::memory_order_relaxed)) timeout = std::min(timeout, kSearchInterval);
  if (framesWait_.load(std::memory_order_relaxed)) timeout = std::min(timeout, kRetryFullDevice);
  wakeEvent_.block({&arrival, 1}, timeout);
  if (interrupt_ >= 0 && arrival.revents != 0) {
    // Consumes the event, or the next sleep would end at once. UIO devices need reads of 4 bytes, all others of 8.
    std::uint64_t count = 0;
    if (::read(interrupt_, &count, 8) < 0 && errno == EINVAL) (void)!::read(interrupt_, &count, 4);
  }
}

void IpPort::disarmWakeup() {
  wakeEvent_.disarm();
  if (parts_.reservation) parts_.reservation->disarm();
  if (interrupt_ >= 0) (void)rte_eth_dev_rx_intr_disable(parts_.device->port(), 0);
}

PortCounters IpPort::counters() const {
  PortCounters counters = counters_;
  counters.droppedNoBuffer = parts_.device->missed();
  if (parts_.capture) parts_.capture->addTo(counters);
  return counters;
}

void IpPort::finishCapture() {
  if (parts_.capture) parts_.capture->finish();
}

}  // namespace gloo_bypass::dpdk
