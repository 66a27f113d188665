// The 42 bytes before a datagram: Ethernet II, IPv4 without options, UDP. Pure functions on bytes.
//
// UDP checksum: 0 (allowed over IPv4: "none"), or the pseudo-header's sum, which the device completes. The protocol
// above adds its own CRC if nothing below checks. DF is always set: a datagram is never fragmented.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gloo_bypass::dpdk {

using MacAddress = std::array<std::uint8_t, 6>;
using Ipv4Address = std::uint32_t;  // host byte order

inline constexpr std::size_t kEthernetHeaderBytes = 14;
inline constexpr std::size_t kIpv4HeaderBytes = 20;
inline constexpr std::size_t kUdpHeaderBytes = 8;
inline constexpr std::size_t kFrameHeaderBytes = kEthernetHeaderBytes + kIpv4HeaderBytes + kUdpHeaderBytes;
// Bytes of an MTU that do not carry datagram.
inline constexpr std::size_t kMtuOverheadBytes = kIpv4HeaderBytes + kUdpHeaderBytes;

inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint8_t kProtocolIcmp = 1;
inline constexpr std::uint8_t kProtocolUdp = 17;
inline constexpr MacAddress kBroadcastMac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

struct UdpFlow {
  MacAddress sourceMac{}, destinationMac{};
  Ipv4Address sourceIp = 0, destinationIp = 0;
  std::uint16_t sourcePort = 0, destinationPort = 0;
};

enum class UdpChecksum : std::uint8_t {
  kNone,
  kByDevice,  // the field holds the pseudo-header's sum (RFC 768), which the device completes
};

// Headers of one flow, written once; each frame then needs a copy of 42 bytes and two lengths.
class FrameTemplate {
 public:
  FrameTemplate() = default;
  explicit FrameTemplate(const UdpFlow& flow, UdpChecksum checksum = UdpChecksum::kNone);
  UdpChecksum checksum() const { return checksum_; }
  // Writes kFrameHeaderBytes to `out`. `datagramBytes` at most 65,507.
  void write(std::byte* out, std::size_t datagramBytes) const;
  std::array<std::byte, kFrameHeaderBytes> written(std::size_t datagramBytes) const {
    std::array<std::byte, kFrameHeaderBytes> out;
    write(out.data(), datagramBytes);
    return out;
  }

 private:
  std::array<std::uint8_t, kFrameHeaderBytes> bytes_{};
  std::uint32_t checksumBase_ = 0;      // sum over the IPv4 header without the total length
  std::uint32_t pseudoHeaderBase_ = 0;  // sum over the pseudo-header without the length
  UdpChecksum checksum_ = UdpChecksum::kNone;
};

// Reads 16 and 32 bits, big endian.
inline std::uint16_t readBe16(const std::byte* p) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(p[0]) << 8 | std::to_integer<unsigned>(p[1]));
}
inline std::uint32_t readBe32(const std::byte* p) {
  return static_cast<std::uint32_t>(readBe16(p)) << 16 | readBe16(p + 2);
}
inline void writeBe16(std::byte* p, std::uint16_t v) {
  p[0] = static_cast<std::byte>(v >> 8);
  p[1] = static_cast<std::byte>(v & 0xff);
}
inline void writeBe32(std::byte* p, std::uint32_t v) {
  writeBe16(p, static_cast<std::uint16_t>(v >> 16));
  writeBe16(p + 2, static_cast<std::uint16_t>(v & 0xffff));
}

// A received IPv4 frame, with every field checked. nullopt: not IPv4, cut short, a fragment, or a wrong header
// checksum.
struct Ipv4Packet {
  MacAddress sourceMac{}, destinationMac{};
  Ipv4Address sourceIp = 0, destinationIp = 0;
  std::uint8_t protocol = 0;
  std::span<const std::byte> payload;  // behind the IPv4 header, in the length the header gives
};
std::optional<Ipv4Packet> parseIpv4Frame(std::span<const std::byte> frame);

struct UdpDatagram {
  std::uint16_t sourcePort = 0, destinationPort = 0;
  std::span<const std::byte> data;
};
std::optional<UdpDatagram> parseUdp(std::span<const std::byte> payload);
// For a packet that parseUdp() has accepted. False also if it has no checksum.
bool hasRightUdpChecksum(const Ipv4Packet& packet);

// An ICMP report that a UDP datagram did not arrive, and why (RFC 792, 1191), with the datagram's flow.
struct NotDelivered {
  bool portUnreachable = false;  // reported by the quoted destination itself; else the datagram was too large for a hop
  std::uint16_t mtu = 0;         // of that hop
  Ipv4Address sourceIp = 0, destinationIp = 0;
  std::uint16_t sourcePort = 0, destinationPort = 0;
  std::span<const std::byte> data;  // the quoted part of the datagram
};
// nullopt: any other packet, a "port unreachable" that the destination did not send, and "too large" without an MTU.
std::optional<NotDelivered> parseNotDelivered(const Ipv4Packet& packet);

// For a frame of `frameBytes` that begins with these headers, all without options: the length of the datagram behind
// them. nullopt for any other frame.
std::optional<std::size_t> udpDatagramBytes(std::span<const std::byte, kFrameHeaderBytes> headers,
                                            std::size_t frameBytes);

// RFC 1071 over `bytes`, folded and inverted.
std::uint16_t internetChecksum(std::span<const std::byte> bytes);

std::string toString(Ipv4Address address);
std::string toString(const MacAddress& mac);

}  // namespace gloo_bypass::dpdk
