#include "transport/dpdk/frame.h"

#include <fmt/format.h>

#include <cstring>

#include "transport/base/check.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::uint8_t kVersionAndLength = 0x45;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentMask = 0x3fff;  // more-fragments bit and offset
constexpr std::uint8_t kTimeToLive = 64;
constexpr std::size_t kIcmpHeaderBytes = 8;
constexpr std::uint8_t kIcmpUnreachable = 3, kIcmpPortUnreachable = 3, kIcmpTooLarge = 4;
constexpr std::size_t kIpLengthAt = kEthernetHeaderBytes + 2;
constexpr std::size_t kIpChecksumAt = kEthernetHeaderBytes + 10;
constexpr std::size_t kUdpLengthAt = kEthernetHeaderBytes + kIpv4HeaderBytes + 4;
constexpr std::size_t kUdpChecksumAt = kUdpLengthAt + 2;

std::uint32_t sumWords(std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) sum += readBe16(&bytes[i]);
  if (i < bytes.size()) sum += std::to_integer<std::uint32_t>(bytes[i]) << 8;
  return sum;
}

std::uint16_t fold(std::uint32_t sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

std::uint16_t foldAndInvert(std::uint32_t sum) { return static_cast<std::uint16_t>(~fold(sum)); }

}  // namespace

std::uint16_t internetChecksum(std::span<const std::byte> bytes) { return foldAndInvert(sumWords(bytes)); }

FrameTemplate::FrameTemplate(const UdpFlow& flow, UdpChecksum checksum) : checksum_(checksum) {
  std::memcpy(&bytes_[0], flow.destinationMac.data(), 6);
  std::memcpy(&bytes_[6], flow.sourceMac.data(), 6);
  auto* out = reinterpret_cast<std::byte*>(bytes_.data());
  writeBe16(out + 12, kEtherTypeIpv4);
  std::byte* ip = out + kEthernetHeaderBytes;
  ip[0] = std::byte{kVersionAndLength};
  writeBe16(ip + 6, kDontFragment);
  ip[8] = std::byte{kTimeToLive};
  ip[9] = std::byte{kProtocolUdp};
  writeBe32(ip + 12, flow.sourceIp);
  writeBe32(ip + 16, flow.destinationIp);
  std::byte* udp = ip + kIpv4HeaderBytes;
  writeBe16(udp, flow.sourcePort);
  writeBe16(udp + 2, flow.destinationPort);
  checksumBase_ = sumWords({ip, kIpv4HeaderBytes});
  pseudoHeaderBase_ = sumWords({ip + 12, 8}) + kProtocolUdp;
}

void FrameTemplate::write(std::byte* out, std::size_t datagramBytes) const {
  const std::size_t ipBytes = datagramBytes + kMtuOverheadBytes;
  GLOO_BYPASS_CHECK(ipBytes <= 0xffff);
  std::memcpy(out, bytes_.data(), bytes_.size());
  writeBe16(out + kIpLengthAt, static_cast<std::uint16_t>(ipBytes));
  writeBe16(out + kIpChecksumAt, foldAndInvert(checksumBase_ + static_cast<std::uint32_t>(ipBytes)));
  const std::size_t udpBytes = ipBytes - kIpv4HeaderBytes;
  writeBe16(out + kUdpLengthAt, static_cast<std::uint16_t>(udpBytes));
  if (checksum_ == UdpChecksum::kNone) return;
  writeBe16(out + kUdpChecksumAt, fold(pseudoHeaderBase_ + static_cast<std::uint32_t>(udpBytes)));
}

std::optional<Ipv4Packet> parseIpv4Frame(std::span<const std::byte> frame) {
  // One object, returned everywhere, is built in place. A copy would load in large pieces what was stored in small
  // ones, and wait for the stores: a tenth of a rank's time.
  std::optional<Ipv4Packet> packet;
  if (frame.size() < kEthernetHeaderBytes + kIpv4HeaderBytes || readBe16(&frame[12]) != kEtherTypeIpv4) return packet;
  const std::span<const std::byte> ip = frame.subspan(kEthernetHeaderBytes);
  const std::uint8_t versionAndLength = std::to_integer<std::uint8_t>(ip[0]);
  if (versionAndLength >> 4 != 4) return packet;
  const std::size_t headerBytes = (versionAndLength & 0xfU) * 4;
  const std::size_t totalBytes = readBe16(&ip[2]);
  if (headerBytes < kIpv4HeaderBytes || totalBytes < headerBytes || totalBytes > ip.size()) return packet;
  if ((readBe16(&ip[6]) & kFragmentMask) != 0) return packet;
  if (internetChecksum(ip.first(headerBytes)) != 0) return packet;
  packet.emplace();
  std::memcpy(packet->destinationMac.data(), frame.data(), 6);
  std::memcpy(packet->sourceMac.data(), frame.data() + 6, 6);
  packet->sourceIp = readBe32(&ip[12]);
  packet->destinationIp = readBe32(&ip[16]);
  packet->protocol = std::to_integer<std::uint8_t>(ip[9]);
  packet->payload = ip.subspan(headerBytes, totalBytes - headerBytes);
  return packet;
}

std::optional<UdpDatagram> parseUdp(std::span<const std::byte> payload) {
  if (payload.size() < kUdpHeaderBytes) return {};
  const std::size_t length = readBe16(&payload[4]);
  if (length < kUdpHeaderBytes || length > payload.size()) return {};
  return UdpDatagram{readBe16(&payload[0]), readBe16(&payload[2]),
                     payload.subspan(kUdpHeaderBytes, length - kUdpHeaderBytes)};
}

bool hasRightUdpChecksum(const Ipv4Packet& packet) {
  const std::span<const std::byte> udp = packet.payload.first(readBe16(&packet.payload[4]));
  if (readBe16(&udp[6]) == 0) return false;
  const std::uint32_t pseudoHeader = (packet.sourceIp >> 16) + (packet.sourceIp & 0xffff) +
                                     (packet.destinationIp >> 16) + (packet.destinationIp & 0xffff) + kProtocolUdp +
                                     static_cast<std::uint32_t>(udp.size());
  return fold(pseudoHeader + sumWords(udp)) == 0xffff;
}

std::optional<NotDelivered> parseNotDelivered(const Ipv4Packet& packet) {
  const std::span<const std::byte> icmp = packet.payload;
  if (packet.protocol != kProtocolIcmp || icmp.size() < kIcmpHeaderBytes + kMtuOverheadBytes ||
      std::to_integer<std::uint8_t>(icmp[0]) != kIcmpUnreachable) {
    return {};
  }
  const std::span<const std::byte> ip = icmp.subspan(kIcmpHeaderBytes);
  const std::span<const std::byte> udp = ip.subspan(kIpv4HeaderBytes);
  if (ip[0] != std::byte{kVersionAndLength} || std::to_integer<std::uint8_t>(ip[9]) != kProtocolUdp) return {};
  NotDelivered told{.sourceIp = readBe32(&ip[12]),
                    .destinationIp = readBe32(&ip[16]),
                    .sourcePort = readBe16(&udp[0]),
                    .destinationPort = readBe16(&udp[2]),
                    .data = udp.subspan(kUdpHeaderBytes)};
  switch (std::to_integer<std::uint8_t>(icmp[1])) {
    case kIcmpPortUnreachable:
      told.portUnreachable = true;
      if (told.destinationIp != packet.sourceIp) return {};
      return told;
    case kIcmpTooLarge:
      told.mtu = readBe16(&icmp[6]);
      if (told.mtu == 0) return {};  // a router from before RFC 1191
      return told;
    default:
      return {};
  }
}

std::optional<std::size_t> udpDatagramBytes(std::span<const std::byte, kFrameHeaderBytes> headers,
                                            std::size_t frameBytes) {
  const auto ip = headers.subspan<kEthernetHeaderBytes, kIpv4HeaderBytes>();
  const std::size_t ipBytes = readBe16(&headers[kIpLengthAt]);
  const std::size_t udpBytes = readBe16(&headers[kUdpLengthAt]);
  if (readBe16(&headers[12]) != kEtherTypeIpv4 || ip[0] != std::byte{kVersionAndLength} ||
      std::to_integer<std::uint8_t>(ip[9]) != kProtocolUdp || (readBe16(&ip[6]) & kFragmentMask) != 0 ||
      ipBytes > frameBytes - kEthernetHeaderBytes || udpBytes < kUdpHeaderBytes ||
      udpBytes > ipBytes - kIpv4HeaderBytes || ipBytes < kMtuOverheadBytes || internetChecksum(ip) != 0) {
    return {};
  }
  return udpBytes - kUdpHeaderBytes;
}

std::string toString(Ipv4Address a) {
  return fmt::format("{}.{}.{}.{}", a >> 24, (a >> 16) & 0xff, (a >> 8) & 0xff, a & 0xff);
}

std::string toString(const MacAddress& m) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5]);
}

}  // namespace gloo_bypass::dpdk
