#include "tools/fabric/switch/transport_checksum.h"

#include <algorithm>
#include <vector>

#include "transport/dpdk/frame.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::size_t kTcpHeaderBytes = 20, kUdpChecksumAt = 6, kPseudoHeaderBytes = 12;

}  // namespace

TransportChecksum transportChecksumOf(std::span<const std::byte> frame) {
  const auto packet = dpdk::parseIpv4Frame(frame);
  if (!packet) return TransportChecksum::kNone;
  const std::span<const std::byte> segment = packet->payload;
  const bool tcp = packet->protocol == kProtocolTcp;
  if (!tcp && packet->protocol != dpdk::kProtocolUdp) return TransportChecksum::kNone;
  if (segment.size() < (tcp ? kTcpHeaderBytes : dpdk::kUdpHeaderBytes)) return TransportChecksum::kNone;
  if (!tcp && dpdk::readBe16(&segment[kUdpChecksumAt]) == 0) return TransportChecksum::kNone;
  // The sum goes over addresses, protocol and length too.
  std::vector<std::byte> summed(kPseudoHeaderBytes + segment.size());
  dpdk::writeBe32(&summed[0], packet->sourceIp);
  dpdk::writeBe32(&summed[4], packet->destinationIp);
  dpdk::writeBe16(&summed[8], packet->protocol);
  dpdk::writeBe16(&summed[10], static_cast<std::uint16_t>(segment.size()));
  std::copy(segment.begin(), segment.end(), summed.begin() + kPseudoHeaderBytes);
  return dpdk::internetChecksum(summed) == 0 ? TransportChecksum::kRight : TransportChecksum::kWrong;
}

}  // namespace gloo_bypass::fabric
