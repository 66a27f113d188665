#include "tools/fabric/switch/interface_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "tools/fabric/switch/transport_checksum.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::size_t kMostRingBytes = 8u << 20, kLeastRingBytes = 256 * 1024;
constexpr std::size_t kBlockBytes = 64 * 1024;
// TPACKET2 header, link-layer address and alignment before the frame in its slot.
constexpr std::size_t kSlotOverheadBytes = 128;
constexpr std::uint16_t kBurst = 32;
constexpr unsigned kBuffers = 128;
constexpr int kDrainLimit = 64;
// Enough to tell how the other end is set up.
constexpr unsigned kChecksumsToLookAt = 64;
constexpr int kAlarmBufferBytes = 2048;  // the kernel's minimum: that something came is all that counts

Error interfaceError(const std::string& name, const std::string& what) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, fmt::format("interface '{}': {}", name, what)};
}

struct Interface {
  int index = 0;
  std::size_t mtu = 0;
};

Result<Interface> inspect(const std::string& name) {
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (!fd || name.empty() || name.size() >= IFNAMSIZ) return interfaceError(name, "this is no interface's name");
  std::memcpy(request.ifr_name, name.c_str(), name.size());
  if (::ioctl(fd.get(), SIOCGIFINDEX, &request) != 0) {
    return interfaceError(
        name, "there is none of this name in the fabric's network namespace (ip link shows those there are)");
  }
  Interface interface;
  interface.index = request.ifr_ifindex;
  if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP) == 0) {
    return interfaceError(name, fmt::format("it is down: ip link set {} up", name));
  }
  if (::ioctl(fd.get(), SIOCGIFHWADDR, &request) != 0 || request.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
    return interfaceError(name, "it is no Ethernet");
  }
  if (::ioctl(fd.get(), SIOCGIFMTU, &request) == 0) interface.mtu = static_cast<std::size_t>(request.ifr_mtu);
  return interface;
}

std::string deviceArguments(const std::string& interface, std::size_t slotBytes, std::size_t ringBytes) {
  return fmt::format("iface={},blocksz={},framesz={},framecnt={},qdisc_bypass=1", interface,
                     std::max(kBlockBytes, slotBytes), slotBytes,
                     std::max<std::size_t>(ringBytes, 4 * slotBytes) / slotBytes);
}

bool mayLock(std::size_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return false;
  const bool locked = ::mlock2(address, bytes, MLOCK_ONFAULT) == 0;
  ::munmap(address, bytes);
  return locked;
}

}  // namespace

std::size_t InterfacePort::ringBytesFor(std::size_t interfaces) {
  std::size_t bytes = kMostRingBytes;
  while (bytes > kLeastRingBytes && !mayLock(2 * bytes * interfaces)) bytes /= 2;
  return bytes;
}

Result<std::unique_ptr<InterfacePort>> InterfacePort::create(const std::string& interface, std::size_t longestFrame,
                                                             std::size_t ringBytes, int epoll) {
  const auto found = inspect(interface);
  if (!found) return found.error();
  const std::size_t mtu = longestFrame - dpdk::kEthernetHeaderBytes;
  if (found.value().mtu < mtu) {
    return interfaceError(
        interface, fmt::format("its MTU is {}, the fabric's {}: ip link set {} mtu {}, at both ends of a veth pair, "
                               "or start the fabric with --mtu {}",
                               found.value().mtu, mtu, interface, mtu, found.value().mtu));
  }
  std::unique_ptr<InterfacePort> port(new InterfacePort(interface, longestFrame));
  if (const Status opened = port->openAlarm(found.value().index, epoll); !opened) return opened.error();
  const std::size_t slotBytes = std::bit_ceil(longestFrame + kSlotOverheadBytes);
  // The driver copies a whole slot without a look at the buffer's size.
  auto received =
      dpdk::makePacketPool("fabric-rx", kBuffers, std::min<std::size_t>(slotBytes + RTE_PKTMBUF_HEADROOM, 0xffff));
  if (!received) return received.error();
  auto toSend = dpdk::makePacketPool("fabric-tx", kBuffers, longestFrame + RTE_PKTMBUF_HEADROOM);
  if (!toSend) return toSend.error();
  port->received_ = std::move(received).value();
  port->toSend_ = std::move(toSend).value();
  dpdk::EthernetDeviceOptions options;
  options.name = fmt::format("net_af_packet_{}", interface);
  options.vdevArguments = deviceArguments(interface, slotBytes, ringBytes);
  options.receivePool = port->received_.get();
  auto device = dpdk::EthernetDevice::create(options);
  if (!device) {
    return interfaceError(interface, device.error().message +
                                         ": this needs root, or CAP_NET_RAW and locked memory for the driver's rings "
                                         "(CAP_IPC_LOCK, or ulimit -l unlimited)");
  }
  port->device_ = std::move(device).value();
  return port;
}

Status InterfacePort::openAlarm(int index, int epoll) {
  // Bound to no protocol until it has its filter.
  alarm_.reset(::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!alarm_) {
    return interfaceError(
        interface_,
        errno == EPERM
            ? "no right to open raw sockets: run the fabric as root, with CAP_NET_RAW, or by scripts/fabric-run"
            : std::strerror(errno));
  }
  setAlarmFilter(0);
  (void)::setsockopt(alarm_.get(), SOL_SOCKET, SO_RCVBUF, &kAlarmBufferBytes, sizeof(kAlarmBufferBytes));
  const int on = 1;
  (void)::setsockopt(alarm_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (::bind(alarm_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      !watch(epoll, alarm_.get(), EPOLLIN)) {
    return interfaceError(interface_, std::strerror(errno));
  }
  return {};
}

void InterfacePort::setAlarmFilter(std::uint32_t acceptedBytes) const {
  sock_filter instruction = BPF_STMT(BPF_RET | BPF_K, acceptedBytes);
  const sock_fprog program{1, &instruction};
  (void)::setsockopt(alarm_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void InterfacePort::wakeOnFrames(bool wanted) {
  setAlarmFilter(wanted ? 1 : 0);
  if (wanted) return;
  char byte;
  for (int i = 0; i < kDrainLimit && ::recv(alarm_.get(), &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0; ++i) {
  }
}

void InterfacePort::lookAtChecksum(std::span<const std::byte> frame) {
  const TransportChecksum checksum = transportChecksumOf(frame);
  if (checksum == TransportChecksum::kNone) return;
  ++checksumsLooked_;
  if (checksum == TransportChecksum::kWrong) ++counters_.unfinished;
}

std::size_t InterfacePort::receive(FrameSink& sink, std::size_t maxFrames) {
  std::size_t taken = 0;
  while (taken < maxFrames) {
    std::array<rte_mbuf*, kBurst> mbufs;
    const auto wanted = static_cast<std::uint16_t>(std::min<std::size_t>(maxFrames - taken, kBurst));
    const std::uint16_t count = device_->receive(mbufs.data(), wanted);
    for (std::uint16_t i = 0; i < count; ++i) {
      const std::span frame(rte_pktmbuf_mtod(mbufs[i], const std::byte*), mbufs[i]->data_len);
      if (mbufs[i]->nb_segs != 1) {
        ++counters_.malformed;
        continue;
      }
      if (checksumsLooked_ < kChecksumsToLookAt && frame.size() <= longestFrame_) lookAtChecksum(frame);
      take(frame, sink);
    }
    if (count > 0) rte_pktmbuf_free_bulk(mbufs.data(), count);
    taken += count;
    if (count < wanted) break;
  }
  return taken;
}

std::size_t InterfacePort::transmit(std::span<Frame* const> frames) {
  std::array<rte_mbuf*, kBurst> mbufs;
  std::uint16_t built = 0;
  for (const std::size_t count = std::min<std::size_t>(frames.size(), kBurst); built < count; ++built) {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(toSend_.get());
    if (mbuf == nullptr) break;
    const std::span<const std::byte> bytes = frames[built]->bytes();
    std::memcpy(rte_pktmbuf_mtod(mbuf, std::byte*), bytes.data(), bytes.size());
    mbuf->data_len = static_cast<std::uint16_t>(bytes.size());
    mbuf->pkt_len = static_cast<std::uint32_t>(bytes.size());
    mbufs[built] = mbuf;
  }
  const std::uint16_t accepted = built == 0 ? 0 : device_->transmit(mbufs.data(), built);
  for (std::uint16_t i = 0; i < accepted; ++i) counters_.bytesOut += frames[i]->length;
  counters_.framesOut += accepted;
  if (accepted < built) rte_pktmbuf_free_bulk(&mbufs[accepted], built - accepted);
  return accepted;
}

FabricPortCounters InterfacePort::counters() const {
  FabricPortCounters counters = counters_;
  counters.missed = device_->missed();
  return counters;
}

}  // namespace gloo_bypass::fabric
