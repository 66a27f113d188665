#include "tools/capture/dissection.h"

#include <algorithm>
#include <utility>

#include "transport/wire/packet_outline.h"

namespace gloo_bypass::capture {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kEthernetBytes = 14, kCookedBytes = 16, kCooked2Bytes = 20, kVlanBytes = 4;
constexpr std::size_t kIpv4Bytes = 20, kUdpBytes = 8, kTcpBytes = 20, kTransportHeaderBytes = 12,
                      kRoceChecksumBytes = 4;
constexpr std::uint16_t kTypeIpv4 = 0x0800, kTypeVlan = 0x8100, kTypeVlanOuter = 0x88a8;
constexpr std::uint8_t kProtocolTcp = 6, kProtocolUdp = 17;
constexpr std::uint16_t kRocePort = 4791;
constexpr std::uint8_t kTcpFin = 1, kTcpSyn = 2, kTcpReset = 4;
constexpr std::uint8_t kRoceAcknowledge = 0x11, kRoceAtomicAcknowledge = 0x12;
// Two are allowed by 802.1ad.
constexpr int kMaxVlanTags = 4;

std::uint8_t load8(Bytes bytes, std::size_t at) { return std::to_integer<std::uint8_t>(bytes[at]); }
std::uint16_t load16(Bytes bytes, std::size_t at) {
  return static_cast<std::uint16_t>(load8(bytes, at) << 8 | load8(bytes, at + 1));
}
std::uint32_t load32(Bytes bytes, std::size_t at) {
  return static_cast<std::uint32_t>(load16(bytes, at)) << 16 | load16(bytes, at + 2);
}

// A part of a frame: what was kept of it, and how long it was.
struct Part {
  Bytes kept;
  std::uint64_t length = 0;

  bool has(std::size_t bytes) const { return kept.size() >= bytes && length >= bytes; }
  Part after(std::size_t bytes) const {
    return {kept.subspan(std::min(bytes, kept.size())), length - std::min<std::uint64_t>(bytes, length)};
  }
  Part atMost(std::uint64_t bytes) const {
    return {kept.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kept.size()))), std::min(bytes, length)};
  }
};

// Headers between the base transport header and the payload, of the reliable connected and the datagram service;
// InfiniBand Architecture, volume 1, table "OpCode field".
std::size_t roceExtensionBytes(std::uint8_t opcode) {
  constexpr std::uint8_t kAddress = 16, kImmediate = 4, kAcknowledge = 4, kAtomic = 28, kDatagram = 8;
  constexpr std::pair<std::uint8_t, std::uint8_t> kExtensions[] = {{0x03, kImmediate},
                                                                   {0x05, kImmediate},
                                                                   {0x06, kAddress},
                                                                   {0x09, kImmediate},
                                                                   {0x0a, kAddress},
                                                                   {0x0b, kAddress + kImmediate},
                                                                   {0x0c, kAddress},
                                                                   {0x0d, kAcknowledge},
                                                                   {0x0f, kAcknowledge},
                                                                   {0x10, kAcknowledge},
                                                                   {0x13, kAtomic},
                                                                   {0x14, kAtomic},
                                                                   {0x16, kImmediate},
                                                                   {0x17, kImmediate},
                                                                   {0x64, kDatagram},
                                                                   {0x65, kDatagram + kImmediate},
                                                                   {kRoceAcknowledge, kAcknowledge},
                                                                   {kRoceAtomicAcknowledge, kAcknowledge + 8}};
  for (const auto& [known, bytes] : kExtensions)
    if (known == opcode) return bytes;
  return 0;
}

void dissectRoce(const Part& part, DissectedFrame& frame) {
  if (!part.has(kTransportHeaderBytes)) return;
  const std::uint8_t opcode = load8(part.kept, 0);
  const bool acknowledges = opcode == kRoceAcknowledge || opcode == kRoceAtomicAcknowledge;
  frame.kind = acknowledges ? FrameKind::kRoceAck : FrameKind::kRoce;
  const std::size_t padding = (load8(part.kept, 1) >> 4) & 3;
  const std::uint64_t around = kTransportHeaderBytes + roceExtensionBytes(opcode) + padding + kRoceChecksumBytes;
  frame.payloadBytes = acknowledges ? 0 : part.length - std::min(part.length, around);
}

std::optional<MessagePart> messageOf(const wire::PacketOutline& outline, const Part& part) {
  const auto message = wire::outlineMessage(part.kept, outline);
  if (!message) return {};
  Part payload = part.after(outline.headerBytes);
  MessagePart found{.id = message->id, .tag = message->tag};
  if (message->chunkLength && *message->chunkLength < payload.length) {
    found.isJoined = true;
    payload = payload.atMost(*message->chunkLength);
  }
  found.isWhole = message->totalLength && *message->totalLength <= payload.length;
  if (message->chunkOffset == 0u) found.beginning = payload.kept;
  return found;
}

void dissectBypass(const wire::PacketOutline& outline, const Part& part, DissectedFrame& frame) {
  frame.kind = FrameKind::kBypassControl;
  frame.session = outline.receiverId;
  frame.message = messageOf(outline, part);
  if (outline.type == wire::FrameType::kAck) frame.kind = FrameKind::kBypassAck;
  // Repair frames are of what protects data, as headers are, and no data: control. So are the pieces of a frame that
  // was sent whole before.
  if (!wire::isData(outline.type)) return;
  frame.kind = FrameKind::kBypass;
  frame.payloadBytes = part.length - outline.headerBytes;
  frame.sequence = outline.sequence;
  frame.damaged = outline.damaged;
}

void dissectUdp(const Part& datagram, DissectedFrame& frame) {
  if (!datagram.has(kUdpBytes)) return;
  frame.sourcePort = load16(datagram.kept, 0);
  frame.destinationPort = load16(datagram.kept, 2);
  const std::uint16_t length = load16(datagram.kept, 4);
  // 0: larger than 16 bits can say, before segmentation by the adapter.
  const Part part = (length < kUdpBytes ? datagram : datagram.atMost(length)).after(kUdpBytes);
  frame.isUdp = true;
  frame.udpPayload = part.kept;
  if (part.kept.size() < std::min<std::uint64_t>(part.length, wire::kOutlineBytes)) return;
  frame.kind = FrameKind::kUdp;
  if (frame.destinationPort == kRocePort) {
    frame.kind = FrameKind::kCut;
    dissectRoce(part, frame);
  } else if (const auto outline = wire::outlinePacket(part.kept, static_cast<std::size_t>(part.length))) {
    dissectBypass(*outline, part, frame);
  }
}

void dissectTcp(const Part& segment, DissectedFrame& frame) {
  if (!segment.has(kTcpBytes)) return;
  frame.sourcePort = load16(segment.kept, 0);
  frame.destinationPort = load16(segment.kept, 2);
  frame.sequence = load32(segment.kept, 4);
  const std::size_t header = std::size_t{4} * (load8(segment.kept, 12) >> 4);
  if (header < kTcpBytes || header > segment.length) return;
  const std::uint8_t flags = load8(segment.kept, 13);
  frame.opens = (flags & kTcpSyn) != 0;
  frame.payloadBytes = segment.length - header;
  const bool onlyAcknowledges = frame.payloadBytes == 0 && (flags & (kTcpSyn | kTcpFin | kTcpReset)) == 0;
  frame.kind = onlyAcknowledges ? FrameKind::kTcpAck : FrameKind::kTcp;
}

void dissectIpv4(const Part& rest, DissectedFrame& frame) {
  if (!rest.has(kIpv4Bytes)) return;
  const std::size_t header = std::size_t{4} * (load8(rest.kept, 0) & 15);
  if (load8(rest.kept, 0) >> 4 != 4 || header < kIpv4Bytes) return;
  frame.hasAddresses = true;
  frame.source = load32(rest.kept, 12);
  frame.destination = load32(rest.kept, 16);
  frame.identification = load16(rest.kept, 4);
  const std::uint16_t total = load16(rest.kept, 2);
  // 0: larger than 16 bits can say, before segmentation by the adapter.
  const Part datagram = total == 0 ? rest : rest.atMost(total);
  constexpr std::uint16_t kMoreFragments = 0x2000, kFragmentOffset = 0x1fff;
  if ((load16(rest.kept, 6) & (kMoreFragments | kFragmentOffset)) != 0) {
    frame.kind = FrameKind::kFragment;
    return;
  }
  if (datagram.length < header) return;
  const std::uint8_t protocol = load8(rest.kept, 9);
  if (protocol == kProtocolTcp) {
    dissectTcp(datagram.after(header), frame);
  } else if (protocol == kProtocolUdp) {
    dissectUdp(datagram.after(header), frame);
  } else {
    frame.kind = FrameKind::kOtherIpv4;
  }
}

// What follows the link layer's header, and whether it is IPv4.
void dissectNetwork(std::uint16_t type, Part rest, DissectedFrame& frame) {
  for (int tags = 0; (type == kTypeVlan || type == kTypeVlanOuter) && tags < kMaxVlanTags; ++tags) {
    if (!rest.has(kVlanBytes)) return;
    type = load16(rest.kept, 2);
    rest = rest.after(kVlanBytes);
  }
  if (type == kTypeIpv4) {
    dissectIpv4(rest, frame);
  } else {
    frame.kind = FrameKind::kNotIpv4;
  }
}

}  // namespace

DissectedFrame dissect(LinkLayer link, Bytes captured, std::uint64_t originalLength) {
  DissectedFrame frame;
  const Part whole{captured, std::max<std::uint64_t>(originalLength, captured.size())};
  frame.wireBytes = whole.length;
  if (link == LinkLayer::kRawIp) {
    frame.wireBytes += kEthernetBytes;
    if (!whole.has(1)) return frame;
    dissectNetwork(load8(captured, 0) >> 4 == 4 ? kTypeIpv4 : 0, whole, frame);
    return frame;
  }
  const std::size_t header = link == LinkLayer::kEthernet ? kEthernetBytes
                             : link == LinkLayer::kCooked ? kCookedBytes
                                                          : kCooked2Bytes;
  const std::size_t typeAt = link == LinkLayer::kEthernet ? 12 : link == LinkLayer::kCooked ? 14 : 0;
  if (!whole.has(header)) return frame;
  frame.wireBytes = whole.length - header + kEthernetBytes;
  dissectNetwork(load16(captured, typeAt), whole.after(header), frame);
  return frame;
}

}  // namespace gloo_bypass::capture
