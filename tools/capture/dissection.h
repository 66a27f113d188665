// What a captured frame is, told from the bytes that were kept of it. Pure. The bytes are hostile: every length is
// checked against what is there before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace gloo_bypass::capture {

// How the captured bytes begin.
enum class LinkLayer : std::uint8_t {
  kEthernet,
  kRawIp,
  kCooked,   // LINUX_SLL: tcpdump -i any, older
  kCooked2,  // LINUX_SLL2: tcpdump -i any
};

enum class FrameKind : std::uint8_t {
  kTcp,            // with payload, or opening or closing a connection
  kTcpAck,         // neither
  kBypass,         // gloo-bypass over UDP, with a message's payload
  kBypassAck,      // of which only the acknowledgement counts
  kBypassControl,  // any other frame of it
  kRoce,           // RoCEv2, UDP port 4791
  kRoceAck,
  kUdp,       // any other
  kFragment,  // of an IPv4 datagram: what is in it is not told
  kOtherIpv4,
  kNotIpv4,  // ARP, IPv6
  kCut,      // the snap length, or the frame's end, came before the headers' end
};

// The message that a frame of gloo-bypass has bytes of, or announces.
struct MessagePart {
  std::uint64_t id = 0;
  std::optional<std::uint64_t> tag;      // where this frame describes the message, and that was kept
  bool isWhole = false;                  // this frame has all of it
  bool isJoined = false;                 // other datagrams follow in this frame: joined before the capture
  std::span<const std::byte> beginning;  // what was kept of the message's first bytes, if this frame has them
};

struct DissectedFrame {
  FrameKind kind = FrameKind::kCut;
  bool hasAddresses = false;                  // IPv4
  std::uint32_t source = 0, destination = 0;  // host byte order
  std::uint16_t sourcePort = 0, destinationPort = 0;
  std::uint16_t identification = 0;  // of IPv4
  // Ethernet header to the end of payload and padding; no preamble, no checksum. A cooked header counts as an Ethernet
  // one.
  std::uint64_t wireBytes = 0;
  // Of kTcp, kBypass and kRoce: bytes that the user's data takes.
  std::uint64_t payloadBytes = 0;
  // Of kTcp: the payload's first byte. Of kBypass: the frame.
  std::uint32_t sequence = 0;
  std::uint64_t session = 0;              // of gloo-bypass: the receiver's id
  std::optional<MessagePart> message;     // of gloo-bypass, where there is one
  bool opens = false;                     // TCP's SYN
  bool damaged = false;                   // of gloo-bypass: its header, with the sequence number
  bool isUdp = false;                     // also where it is too short to tell more
  std::span<const std::byte> udpPayload;  // what was captured of it
};

// `captured`: the bytes kept; `originalLength`: how long the frame was, as the capture says.
DissectedFrame dissect(LinkLayer link, std::span<const std::byte> captured, std::uint64_t originalLength);

}  // namespace gloo_bypass::capture
