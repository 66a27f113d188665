// Frames of each kind, whole and cut, and their dissection.
#include "tools/capture/dissection.h"

#include <gtest/gtest.h>

#include "tests/tools/capture/operation_frames.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::capture {
namespace {

using test::Endpoint;
using test::host;
using test::Octets;
using test::OperationSender;

constexpr Endpoint kA{host(2), 5000}, kB{host(3), 6000};

DissectedFrame dissected(const Octets& frame, LinkLayer link = LinkLayer::kEthernet) {
  return dissect(link, std::as_bytes(std::span(frame)), frame.size());
}

// A datagram made with the transport's codec.
Octets bypassDatagram(wire::FrameType type, std::size_t payloadBytes, std::uint32_t sequence = 7) {
  wire::PacketHeader header;
  header.type = type;
  header.receiverId = 0x1122334455667788;
  header.sequence = sequence;
  wire::PacketWriter writer;
  writer.begin(header);
  writer.addSackRange({1, 2});
  if (type == wire::FrameType::kData) {
    wire::MessageHeader message;
    message.chunkLength = static_cast<std::uint16_t>(payloadBytes);
    writer.messageHeader(message);
    writer.padding(3);
  } else if (wire::isChunk(type)) {
    writer.chunkHeader({});
  }
  const auto bytes = writer.finish();
  Octets out;
  for (const std::byte byte : bytes) out.push_back(std::to_integer<std::uint8_t>(byte));
  out.resize(out.size() + payloadBytes);
  return out;
}

TEST(Dissection, TcpSegment_HasPortsSequenceAndPayload) {
  const auto frame = dissected(test::tcpSegment(kA, kB, 99, 1000));
  EXPECT_EQ(frame.kind, FrameKind::kTcp);
  EXPECT_EQ(frame.wireBytes, 14u + 20 + 20 + 1000);
  EXPECT_EQ(frame.payloadBytes, 1000u);
  EXPECT_EQ(frame.sequence, 99u);
  EXPECT_EQ(frame.source, host(2));
  EXPECT_EQ(frame.destination, host(3));
  EXPECT_EQ(frame.sourcePort, 5000);
  EXPECT_EQ(frame.destinationPort, 6000);
}

TEST(Dissection, TcpWithoutPayload_IsAcknowledgementUnlessItOpensOrCloses) {
  EXPECT_EQ(dissected(test::tcpSegment(kA, kB, 1, 0)).kind, FrameKind::kTcpAck);
  EXPECT_EQ(dissected(test::tcpSegment(kA, kB, 1, 0, 0x12)).kind, FrameKind::kTcp);
  EXPECT_EQ(dissected(test::tcpSegment(kA, kB, 1, 0, 0x11)).kind, FrameKind::kTcp);
}

TEST(Dissection, EthernetPadding_IsNoPayload) {
  Octets frame = test::tcpSegment(kA, kB, 1, 2);
  frame.resize(60);
  EXPECT_EQ(dissected(frame).payloadBytes, 2u);
  EXPECT_EQ(dissected(frame).wireBytes, 60u);
}

TEST(Dissection, SnapLength_TellsLengthsFromTheHeaders) {
  const Octets frame = test::tcpSegment(kA, kB, 1, 1400);
  const auto kept = dissect(LinkLayer::kEthernet, std::as_bytes(std::span(frame)).first(54), frame.size());
  EXPECT_EQ(kept.kind, FrameKind::kTcp);
  EXPECT_EQ(kept.payloadBytes, 1400u);
  EXPECT_EQ(kept.wireBytes, 1454u);
}

TEST(Dissection, EveryPrefix_IsCutUntilTheHeadersEnd) {
  const Octets frame = test::tcpSegment(kA, kB, 1, 100);
  for (std::size_t kept = 0; kept <= frame.size(); ++kept) {
    const Octets prefix(frame.begin(),
                        frame.begin() + static_cast<std::ptrdiff_t>(kept));  // its own memory, for sanitizers
    const auto cut = dissect(LinkLayer::kEthernet, std::as_bytes(std::span(prefix)), frame.size());
    EXPECT_EQ(cut.kind, kept < 54 ? FrameKind::kCut : FrameKind::kTcp) << kept;
    EXPECT_EQ(cut.wireBytes, frame.size());
  }
}

TEST(Dissection, BypassData_PayloadIsWithoutHeaderRangesAndPadding) {
  const auto frame = dissected(test::udpDatagram(kA, kB, bypassDatagram(wire::FrameType::kData, 1200)));
  EXPECT_EQ(frame.kind, FrameKind::kBypass);
  EXPECT_EQ(frame.payloadBytes, 1200u);
  EXPECT_EQ(frame.wireBytes, 14u + 20 + 8 + 56 + 8 + 44 + 3 + 1200);
  EXPECT_EQ(frame.sequence, 7u);
  EXPECT_EQ(frame.session, 0x1122334455667788u);
}

TEST(Dissection, BypassChunks_AreDataBehindShortHeaders) {
  for (const auto type : {wire::FrameType::kChunk, wire::FrameType::kGrantedChunk}) {
    const auto frame = dissected(test::udpDatagram(kA, kB, bypassDatagram(type, 1200)));
    EXPECT_EQ(frame.kind, FrameKind::kBypass);
    EXPECT_EQ(frame.payloadBytes, 1200u);
    EXPECT_EQ(frame.wireBytes, 14u + 20 + 8 + 44 + 8 + 16 + 1200);
    EXPECT_EQ(frame.sequence, 7u);
    EXPECT_EQ(frame.session, 0x1122334455667788u);
  }
}

TEST(Dissection, DatagramsJoinedInOneFrame_AreSaid) {
  OperationSender sender(kA, kB, 1);
  Octets frame = sender.message(7, 100, 100);
  EXPECT_TRUE(dissected(frame).message->isWhole);
  EXPECT_FALSE(dissected(frame).message->isJoined);
  EXPECT_EQ(dissected(frame).message->beginning.size(), 100u);
  frame = test::udpDatagram(kA, kB, [&] {
    Octets two(frame.begin() + 42, frame.end());
    test::append(two, Octets(60));
    return two;
  }());
  EXPECT_TRUE(dissected(frame).message->isJoined);
  EXPECT_EQ(dissected(frame).message->beginning.size(), 100u);
}

TEST(Dissection, BypassFramesOfOtherTypes_AreAcknowledgementOrControl) {
  EXPECT_EQ(dissected(test::udpDatagram(kA, kB, bypassDatagram(wire::FrameType::kAck, 0))).kind, FrameKind::kBypassAck);
  EXPECT_EQ(dissected(test::udpDatagram(kA, kB, bypassDatagram(wire::FrameType::kGrant, 0))).kind,
            FrameKind::kBypassControl);
  EXPECT_EQ(dissected(test::udpDatagram(kA, kB, bypassDatagram(wire::FrameType::kProbe, 900))).payloadBytes, 0u);
}

TEST(Dissection, BypassMagicWithImpossibleLengths_IsOtherUdp) {
  Octets datagram = bypassDatagram(wire::FrameType::kData, 100);
  datagram[18] = 0xff;  // a header longer than the datagram
  datagram[19] = 0xff;
  EXPECT_EQ(dissected(test::udpDatagram(kA, kB, datagram)).kind, FrameKind::kUdp);
}

TEST(Dissection, Roce_PayloadIsWithoutExtensionsPaddingAndChecksum) {
  Octets write(12 + 16 + 1001 + 3 + 4);  // RDMA WRITE Only, 3 bytes of padding
  write[0] = 0x0a;
  write[1] = 3 << 4;
  const auto frame = dissected(test::udpDatagram(kA, {host(3), 4791}, write));
  EXPECT_EQ(frame.kind, FrameKind::kRoce);
  EXPECT_EQ(frame.payloadBytes, 1001u);
  Octets acknowledgement(12 + 4 + 4);
  acknowledgement[0] = 0x11;
  EXPECT_EQ(dissected(test::udpDatagram(kA, {host(3), 4791}, acknowledgement)).kind, FrameKind::kRoceAck);
}

TEST(Dissection, VlanTags_AreSteppedOver) {
  const Octets segment = test::tcpSegment(kA, kB, 1, 10);
  Octets tagged(segment.begin(), segment.begin() + 12);
  for (const std::uint16_t type : {0x88a8, 0x8100}) {
    test::put16(tagged, type);
    test::put16(tagged, 5);
  }
  test::append(tagged, Octets(segment.begin() + 12, segment.end()));
  EXPECT_EQ(dissected(tagged).kind, FrameKind::kTcp);
  EXPECT_EQ(dissected(tagged).payloadBytes, 10u);
  EXPECT_EQ(dissected(tagged).wireBytes, segment.size() + 8);
}

TEST(Dissection, OtherNetworks_AreNotIpv4) {
  EXPECT_EQ(dissected(test::ethernet(Octets(40), 0x86dd)).kind, FrameKind::kNotIpv4);
  EXPECT_EQ(dissected(test::ethernet(Octets(28), 0x0806)).kind, FrameKind::kNotIpv4);
  EXPECT_EQ(dissected(test::ethernet(test::ipv4(kA, kB, 1, Octets(8)))).kind, FrameKind::kOtherIpv4);
}

TEST(Dissection, Fragments_HaveAddressesOnly) {
  const Octets inside(100);
  for (const int fragment : {0x2000, 0x2010, 0x0010}) {
    const auto frame =
        dissected(test::ethernet(test::ipv4(kA, kB, 17, inside, 1, static_cast<std::uint16_t>(fragment))));
    EXPECT_EQ(frame.kind, FrameKind::kFragment);
    EXPECT_TRUE(frame.hasAddresses);
    EXPECT_EQ(frame.destinationPort, 0);
  }
}

TEST(Dissection, CookedHeaders_CountAsEthernet) {
  const Octets segment = test::tcpSegment(kA, kB, 1, 10);
  const Octets packet(segment.begin() + 14, segment.end());
  Octets cooked(14);
  test::put16(cooked, 0x0800);
  test::append(cooked, packet);
  EXPECT_EQ(dissected(cooked, LinkLayer::kCooked).payloadBytes, 10u);
  EXPECT_EQ(dissected(cooked, LinkLayer::kCooked).wireBytes, segment.size());
  Octets cooked2;
  test::put16(cooked2, 0x0800);
  cooked2.resize(20);
  test::append(cooked2, packet);
  EXPECT_EQ(dissected(cooked2, LinkLayer::kCooked2).payloadBytes, 10u);
  EXPECT_EQ(dissected(cooked2, LinkLayer::kCooked2).wireBytes, segment.size());
  EXPECT_EQ(dissected(packet, LinkLayer::kRawIp).payloadBytes, 10u);
  EXPECT_EQ(dissected(packet, LinkLayer::kRawIp).wireBytes, segment.size());
}

TEST(Dissection, LengthsThatLie_StayInsideTheFrame) {
  Octets frame = test::tcpSegment(kA, kB, 1, 10);
  frame[16] = 0xff;  // IPv4's total length, beyond the frame
  EXPECT_EQ(dissected(frame).payloadBytes, 10u);
  frame[46] = 0xf0;  // TCP's header, 60 bytes where 30 are
  EXPECT_EQ(dissected(frame).kind, FrameKind::kCut);
  frame[14] = 0x4f;  // IPv4's header, 60 bytes
  EXPECT_EQ(dissected(frame).payloadBytes, 0u);
  EXPECT_EQ(dissect(LinkLayer::kEthernet, std::as_bytes(std::span(frame)), 3).wireBytes, frame.size());
}

}  // namespace
}  // namespace gloo_bypass::capture
