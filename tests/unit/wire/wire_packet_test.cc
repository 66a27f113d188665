// Packet codec and checksums.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "transport/wire/byte_order.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {
namespace {

std::span<const std::byte> bytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Crc32c, KnownInputs_GivePublishedValues) {
  // RFC 3720, B.4, and the check value of the algorithm's catalogue entry.
  EXPECT_EQ(crc32c(bytesOf("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, BothImplementations_Agree) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const std::size_t begin = length % 9;
    const auto part = std::span(bytes).subspan(begin, std::min(length, bytes.size() - begin));
    EXPECT_EQ(crc32c(part, 77), crc32cPortable(part, 77));
    EXPECT_EQ(crc32c(part.subspan(part.size() / 2), crc32c(part.first(part.size() / 2))), crc32cPortable(part));
  }
}

// Long enough for the hardware's way of working on three stretches at once, and for what is left beside them.
TEST(Crc32c, LongInputs_Agree) {
  std::mt19937_64 random(2);
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t length = 300; length + 3 < bytes.size(); length += 29) {
    const auto part = std::span(bytes).subspan(length % 4, length);
    EXPECT_EQ(crc32c(part, static_cast<std::uint32_t>(length)), crc32cPortable(part, static_cast<std::uint32_t>(length)));
  }
}

PacketHeader sampleHeader() {
  PacketHeader header;
  header.type = FrameType::kData;
  header.receiverId = 0x0123456789abcdefull;
  header.flags = kFlagEcho | kFlagAckRequested;
  header.sequence = 0xfffffffeu;
  header.acknowledged = 5;
  header.timestamp = 6;
  header.timestampEcho = 7;
  header.echoDelay = 8;
  header.messageLimit = 9;
  header.byteLimit = 1ull << 40;
  return header;
}

std::vector<std::byte> sampleDatagram(std::string_view payload) {
  PacketWriter writer;
  PacketHeader header = sampleHeader();
  header.flags |= kFlagPayloadChecksum;
  header.payloadCrc = crc32c(bytesOf(payload));
  writer.begin(header);
  writer.addSackRange({10, 12});
  writer.addSackRange({20, 30});
  MessageHeader message{1, ~0ull, 100, 3, 50, static_cast<std::uint16_t>(payload.size()), 1, kFlagGranted};
  writer.messageHeader(message);
  const auto bytes = writer.finish();
  std::vector<std::byte> datagram(bytes.begin(), bytes.end());
  datagram.insert(datagram.end(), bytesOf(payload).begin(), bytesOf(payload).end());
  return datagram;
}

TEST(Packet, WrittenAndParsed_AllFieldsReturn) {
  const auto datagram = sampleDatagram("hello");
  EXPECT_EQ(datagram.size(), kDataHeaderBytes + 16 + 5);
  EXPECT_EQ(peekReceiverId(datagram), 0x0123456789abcdefull);
  // The layout is a promise: little-endian at the documented offsets.
  EXPECT_EQ(datagram[0], std::byte{0x67});
  EXPECT_EQ(datagram[1], std::byte{0x42});
  EXPECT_EQ(datagram[8], std::byte{0xef});
  EXPECT_EQ(datagram[24], std::byte{0xfe});
  ParsedPacket packet;
  ASSERT_EQ(parsePacket(datagram, &packet), ParseResult::kOk);
  const PacketHeader want = sampleHeader();
  EXPECT_EQ(packet.header.sequence, want.sequence);
  EXPECT_EQ(packet.header.acknowledged, want.acknowledged);
  EXPECT_EQ(packet.header.timestamp, want.timestamp);
  EXPECT_EQ(packet.header.timestampEcho, want.timestampEcho);
  EXPECT_EQ(packet.header.echoDelay, want.echoDelay);
  EXPECT_EQ(packet.header.messageLimit, want.messageLimit);
  EXPECT_EQ(packet.header.byteLimit, want.byteLimit);
  ASSERT_EQ(packet.sackCount(), 2u);
  EXPECT_EQ(packet.sackRange(1).begin, 20u);
  EXPECT_EQ(packet.sackRange(1).end, 30u);
  MessageHeader message;
  ASSERT_TRUE(decodeMessageHeader(packet.body, &message));
  EXPECT_EQ(message.tag, ~0ull);
  EXPECT_EQ(message.totalLength, 100u);
  EXPECT_EQ(message.remoteOffset, 3u);
  EXPECT_EQ(message.chunkOffset, 50u);
  EXPECT_EQ(message.chunkLength, 5u);
  EXPECT_EQ(message.kind, 1u);
  EXPECT_EQ(message.flags, kFlagGranted);
  EXPECT_EQ(packet.payload.size(), 5u);
}

TEST(Packet, AnyBitFlipped_IsNotAccepted) {
  auto datagram = sampleDatagram("hello");
  ParsedPacket packet;
  for (std::size_t bit = 0; bit < datagram.size() * 8; ++bit) {
    datagram[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_NE(parsePacket(datagram, &packet), ParseResult::kOk) << bit;
    datagram[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  EXPECT_EQ(parsePacket(datagram, &packet), ParseResult::kOk);
}

TEST(Packet, AnyTruncation_IsNotAccepted) {
  const auto datagram = sampleDatagram("hello");
  ParsedPacket packet;
  for (std::size_t length = 0; length < datagram.size(); ++length) {
    const std::vector<std::byte> part(datagram.begin(), datagram.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_NE(parsePacket(part, &packet), ParseResult::kOk) << length;
  }
}

TEST(Packet, OtherVersion_IsTold) {
  PacketWriter writer;
  PacketHeader header;
  header.version = 2;
  header.type = FrameType::kHello;
  writer.begin(header);
  writer.hello({});
  ParsedPacket packet;
  EXPECT_EQ(parsePacket(writer.finish(), &packet), ParseResult::kOtherVersion);
  EXPECT_EQ(packet.header.version, 2);
}

// A memory link's datagram can change while it is looked at.
TEST(Packet, DatagramOverwrittenAfterParsing_HeaderAndBodyStay) {
  auto datagram = sampleDatagram("hello");
  ParsedPacket packet;
  ASSERT_EQ(parsePacket(datagram, &packet), ParseResult::kOk);
  std::fill(datagram.begin(), datagram.end(), std::byte{0xff});
  EXPECT_EQ(packet.sackRange(0).begin, 10u);
  MessageHeader message;
  ASSERT_TRUE(decodeMessageHeader(packet.body, &message));
  EXPECT_EQ(message.totalLength, 100u);
  EXPECT_EQ(message.chunkOffset, 50u);
}

TEST(Packet, HeaderLongerThanAny_IsNotAccepted) {
  std::vector<std::byte> datagram(4096);
  PacketWriter writer;
  writer.begin(sampleHeader());
  const auto header = writer.finish();
  std::copy(header.begin(), header.end(), datagram.begin());
  ParsedPacket packet;
  ASSERT_EQ(parsePacket(datagram, &packet), ParseResult::kOk);
  // With a checksum that fits, as only a hostile sender would make it.
  for (const std::size_t length : {kMaxHeaderBytes, kMaxHeaderBytes + 1, datagram.size()}) {
    storeLittle(&datagram[18], static_cast<std::uint16_t>(length));
    const std::uint32_t first = crc32c(std::span(datagram).first(4));
    storeLittle(&datagram[4], crc32c(std::span(datagram).subspan(8, length - 8), first));
    EXPECT_EQ(parsePacket(datagram, &packet), length <= kMaxHeaderBytes ? ParseResult::kOk : ParseResult::kCorrupted);
  }
}

TEST(Packet, RepairFrameAndCountOfRecovered_AreReadAsWritten) {
  PacketWriter writer;
  PacketHeader header;
  header.type = FrameType::kRepair;
  writer.begin(header);
  writer.repairHeader({0xfffffffeu, 128, 7, 32});
  ParsedPacket packet;
  ASSERT_EQ(parsePacket(writer.finish(), &packet), ParseResult::kOk);
  RepairHeader repair;
  ASSERT_TRUE(decodeRepairHeader(packet.body, &repair));
  EXPECT_EQ(repair.firstSequence, 0xfffffffeu);
  EXPECT_EQ(repair.sources, 128);
  EXPECT_EQ(repair.index, 7);
  EXPECT_EQ(repair.repairs, 32);
  EXPECT_FALSE(decodeRepairHeader(packet.body.first(7), &repair));
  header.type = FrameType::kAck;
  writer.begin(header);
  writer.addSackRange({1, 2});
  writer.recovered(77);
  ASSERT_EQ(parsePacket(writer.finish(), &packet), ParseResult::kOk);
  std::uint32_t recovered = 0;
  ASSERT_TRUE(decodeRecovered(packet.body, &recovered));
  EXPECT_EQ(recovered, 77u);
  ASSERT_TRUE(decodeRecovered({}, &recovered));
  EXPECT_EQ(recovered, 0u);
  EXPECT_FALSE(decodeRecovered(packet.body.first(3), &recovered));
}

TEST(Packet, UnknownType_IsMalformed) {
  for (int type : {0, 7, 15, 22, 255}) {
    PacketWriter writer;
    PacketHeader header;
    header.type = static_cast<FrameType>(type);
    writer.begin(header);
    ParsedPacket packet;
    EXPECT_EQ(parsePacket(writer.finish(), &packet), ParseResult::kMalformed) << type;
  }
}

}  // namespace
}  // namespace gloo_bypass
