// Makes ports for link modes netdev and pci from a configuration.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <string_view>

#include "transport/dpdk/eal_arguments.h"
#include "transport/dpdk/ip_port.h"
#include "transport/dpdk/settings.h"
#include "transport/network/local_address.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::dpdk {
namespace {

// Frames must fit the 16-bit lengths of DPDK's buffers with room to spare, and a slot of af_packet's ring, a power of
// two; jumbo frames end at 9216 in practice.
constexpr std::size_t kLargestMtu = 32'000;
constexpr std::size_t kSmallestMtu = wire::kMinDatagramBytes + kMtuOverheadBytes;
constexpr std::uint16_t kDefaultUdpPort = 47777;
constexpr unsigned kReceiveBuffers = 512;
constexpr unsigned kTransmitBuffers = 512;
// Bytes of each of af_packet's two rings.
constexpr std::size_t kRingBytes = 4u << 20;
constexpr std::size_t kLargestFrameSlot = 64 * 1024;
// TPACKET2 header, link-layer address and alignment before the frame in its slot.
constexpr std::size_t kSlotOverheadBytes = 128;
constexpr std::uint16_t kDescriptors = 256;

Error refuse(std::string message) { return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

std::string uniqueName(const char* driver) {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}_gb{}", driver, counter.fetch_add(1));
}

Result<std::size_t> chooseMtu(const TransportConfig& config, std::size_t devices) {
  const std::size_t mtu = std::min({config.mtu != 0 ? config.mtu : devices, devices, kLargestMtu});
  if (mtu < kSmallestMtu) {
    return refuse(
        fmt::format("an MTU of {} is less than {}: raise the interface's or the device's", mtu, kSmallestMtu));
  }
  return mtu;
}

struct RingShape {
  std::size_t slotBytes, blockBytes, slots;
};
RingShape packetRing(std::size_t mtu) {
  const std::size_t slot = std::bit_ceil(mtu + kEthernetHeaderBytes + kSlotOverheadBytes);
  return {slot, kLargestFrameSlot, kRingBytes / slot};
}

Result<std::unique_ptr<PacketPort>> assemble(const TransportConfig& config, const std::string& name,
                                             IpPortParts parts) {
  auto capture = PortCapture::create(config, name, fmt::format("{}, {}", parts.description, toString(parts.self.ip)));
  if (!capture) return capture.error();
  parts.capture = std::move(capture).value();
  auto port = std::make_unique<IpPort>(std::move(parts));
  if (!port->canBeWoken()) return port->canBeWoken();
  return std::unique_ptr<PacketPort>(std::move(port));
}

// A frame that does not fit a buffer of memif's ring is chained, which corrupts streams when the ring is full.
Status checkMemifBuffers(const std::string& device, std::size_t mtu) {
  constexpr std::size_t kDefaultBufferBytes = 2048;
  constexpr std::string_view kKey = ",bsize=";
  if (device.rfind("net_memif", 0) != 0) return {};
  std::size_t bytes = kDefaultBufferBytes;
  if (const std::size_t at = device.find(kKey); at != std::string::npos) {
    const char* const begin = device.data() + at + kKey.size();
    (void)std::from_chars(begin, device.data() + device.size(), bytes);  // the driver refuses text that is not a number
  }
  if (bytes >= mtu + kEthernetHeaderBytes) return {};
  return refuse(fmt::format(
      "GLOO_BYPASS_PCI_ADDRESS: memif's bsize={} is less than a frame of an MTU of {}: give bsize={} or more", bytes,
      mtu, mtu + kEthernetHeaderBytes));
}

// The configured interface, else the one that the route to MASTER_ADDR uses.
Result<KernelInterface> netdevInterface(const TransportConfig& config) {
  if (!config.interface.empty() || config.masterAddress.empty()) return readKernelInterface(config.interface);
  const auto chosen = network::chooseInterface(config.masterAddress);
  if (!chosen) return chosen.error();
  return readKernelInterface(chosen.value());
}

}  // namespace

Result<std::unique_ptr<PacketPort>> makeNetdevPort(const TransportConfig& config) {
  const auto interface = netdevInterface(config);
  if (!interface) return interface.error();
  const auto mtu = chooseMtu(config, interface.value().mtu);
  if (!mtu) return mtu.error();
  IpPortParts parts;
  auto reservation = PortReservation::create(interface.value(), config.udpPorts);
  if (!reservation) return reservation.error();
  parts.reservation = std::move(reservation).value();
  const std::string& name = interface.value().name;
  const bool xdp = config.netdevDriver == NetdevDriver::kAfXdp;
  const RingShape ring = packetRing(std::max(mtu.value(), std::min(interface.value().mtu, kLargestMtu)));
  EthernetDeviceOptions options;
  if (xdp) {
    options.name = uniqueName("net_af_xdp");
    options.vdevArguments = fmt::format("iface={}", name);
  } else {
    options.name = uniqueName("net_af_packet");
    options.vdevArguments = fmt::format("iface={},blocksz={},framesz={},framecnt={},qdisc_bypass=1", name,
                                        ring.blockBytes, ring.slotBytes, ring.slots);
  }
  // The driver copies a whole slot without checking the buffer's size.
  auto buffers =
      PacketBuffers::create({.maxFrameBytes = std::min<std::size_t>(ring.slotBytes, 0xffff - RTE_PKTMBUF_HEADROOM),
                             .receiveBuffers = xdp ? 8192U : kReceiveBuffers / 4,
                             .transmitBuffers = xdp ? 4096U : kReceiveBuffers / 4,
                             .transmitRoomBytes = mtu.value() + kEthernetHeaderBytes});
  if (!buffers) return buffers.error();
  parts.buffers = std::move(buffers).value();
  options.receivePool = parts.buffers->receivePool();
  auto device = EthernetDevice::create(options);
  if (!device) {
    Error error = device.error();
    error.message += fmt::format(
        ": interface '{}' needs root, or CAP_NET_RAW and CAP_NET_ADMIN{}, and locked memory for the "
        "driver's rings (CAP_IPC_LOCK, or ulimit -l unlimited)",
        name, xdp ? " and CAP_BPF" : "");
    return error;
  }
  parts.device = std::move(device).value();
  parts.description = fmt::format("{} on {}", xdp ? "af_xdp" : "af_packet", name);
  parts.mac = interface.value().mac;
  parts.self = UdpAddress{interface.value().ip, parts.reservation->port(), parts.device->checksums()};
  parts.mtu = mtu.value();
  parts.routing.kernel = interface.value();
  return assemble(config, name, std::move(parts));
}

Result<std::unique_ptr<PacketPort>> makePciPort(const TransportConfig& config) {
  const auto own = parseIpv4Prefix(config.ipv4);
  if (!own) return refuse(fmt::format("GLOO_BYPASS_IPV4 is '{}', needed is an address like 10.0.0.2/24", config.ipv4));
  IpPortParts parts;
  parts.routing.prefixMask = own->mask;
  parts.routing.gateway = parseIpv4(config.gateway).value_or(0);
  const std::size_t wantedMtu = std::min(config.mtu != 0 ? config.mtu : 1500, kLargestMtu);
  if (const Status checked = checkMemifBuffers(config.pciAddress, wantedMtu); !checked) return checked.error();
  auto buffers = PacketBuffers::create({.maxFrameBytes = std::max<std::size_t>(wantedMtu + 64, 2048),
                                        .receiveBuffers = 2 * kReceiveBuffers,
                                        .transmitBuffers = kTransmitBuffers,
                                        .transmitRoomBytes = std::max<std::size_t>(wantedMtu + 64, 2048)});
  if (!buffers) return buffers.error();
  parts.buffers = std::move(buffers).value();
  EthernetDeviceOptions options;
  const bool isVirtual = isVirtualDeviceString(config.pciAddress);
  const std::size_t comma = config.pciAddress.find(',');
  options.name = config.pciAddress.substr(0, comma);
  options.existing = !isVirtual;
  if (isVirtual && comma != std::string::npos) options.vdevArguments = config.pciAddress.substr(comma + 1);
  options.receivePool = parts.buffers->receivePool();
  options.receiveDescriptors = options.transmitDescriptors = kDescriptors;
  options.mtu = wantedMtu;
  // The eventfds of vhost and virtio_user stay readable and end every sleep at once: poll those devices instead.
  options.receiveInterrupts = !isVirtual;
  auto device = EthernetDevice::create(options);
  if (!device) return device.error();
  parts.device = std::move(device).value();
  const std::size_t deviceMtu = parts.device->mtu();
  const auto mtu = chooseMtu(config, deviceMtu != 0 ? std::min(deviceMtu, wantedMtu) : wantedMtu);
  if (!mtu) return mtu.error();
  parts.mtu = mtu.value();
  parts.mac = parts.device->mac();
  parts.self = UdpAddress{own->ip, config.udpPorts.first != 0 ? config.udpPorts.first : kDefaultUdpPort,
                          parts.device->checksums()};
  parts.description = fmt::format("DPDK device {}", options.name);
  return assemble(config, options.name, std::move(parts));
}

}  // namespace gloo_bypass::dpdk
