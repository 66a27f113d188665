// Packet codec and checksums.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "transport/base/byte_order.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/packet.h"
#include "transport/wire/packet_outline.h"

namespace gloo_bypass {
namespace {

std::span<const std::byte> bytesOf(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

TEST(Crc32c, KnownInputs_GivePublishedValues) {
  // RFC 3720, B.4, and the check value of the algorithm's catalogue entry.
  EXPECT_EQ(wire::crc32c(bytesOf("123456789")), 0xe3069283u);
  EXPECT_EQ(wire::crc32c(std::vector<std::byte>(32)), 0x8a9136aau);
  EXPECT_EQ(wire::crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(wire::crc32c({}), 0u);
}

// The definition, a bit at a time.
std::uint32_t crc32cByBits(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint32_t crc = ~previous;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

std::vector<std::byte> randomBytes(std::size_t length) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(length);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Each length up to beyond the one from which another algorithm is faster, at each alignment.
TEST(Crc32c, EachShortLength_IsAsDefined) {
  const std::vector<std::byte> bytes = randomBytes(600);
  for (std::size_t length = 0; length < 560; ++length) {
    const auto part = std::span(bytes).subspan(length % 9, length);
    EXPECT_EQ(wire::crc32c(part, 77), crc32cByBits(part, 77)) << length;
    const std::size_t half = length / 2;
    EXPECT_EQ(wire::crc32c(part.subspan(half), wire::crc32c(part.first(half))), crc32cByBits(part, 0)) << length;
  }
}

TEST(Crc32c, LongInputs_AreAsDefined) {
  const std::vector<std::byte> bytes = randomBytes(5000);
  for (std::size_t length = 300; length + 8 < bytes.size(); length += 29) {
    const auto part = std::span(bytes).subspan(length % 8, length);
    const auto previous = static_cast<std::uint32_t>(length);
    EXPECT_EQ(wire::crc32c(part, previous), crc32cByBits(part, previous)) << length;
  }
}

wire::PacketHeader sampleHeader() {
  wire::PacketHeader header;
  header.type = wire::FrameType::kData;
  header.receiverId = 0x0123456789abcdefull;
  header.flags = wire::kFlagEcho | wire::kFlagAckRequested;
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
  wire::PacketWriter writer;
  wire::PacketHeader header = sampleHeader();
  header.flags |= wire::kFlagPayloadChecksum;
  header.payloadCrc = wire::crc32c(bytesOf(payload));
  writer.begin(header);
  writer.addSackRange({10, 12});
  writer.addSackRange({20, 30});
  wire::MessageHeader message{1, ~0ull, 100, 3, 50, static_cast<std::uint16_t>(payload.size()), 1, wire::kFlagGranted};
  writer.messageHeader(message);
  const auto bytes = writer.finish();
  std::vector<std::byte> datagram(bytes.begin(), bytes.end());
  datagram.insert(datagram.end(), bytesOf(payload).begin(), bytesOf(payload).end());
  return datagram;
}

TEST(Packet, WrittenAndParsed_AllFieldsReturn) {
  const auto datagram = sampleDatagram("hello");
  EXPECT_EQ(datagram.size(), wire::dataHeaderBytes(wire::FrameType::kData) + 16 + 5);
  EXPECT_EQ(wire::peekReceiverId(datagram), 0x0123456789abcdefull);
  // The layout is a promise: little-endian at the documented offsets.
  EXPECT_EQ(datagram[0], std::byte{0x67});
  EXPECT_EQ(datagram[1], std::byte{0x42});
  EXPECT_EQ(datagram[8], std::byte{0xef});
  EXPECT_EQ(datagram[24], std::byte{0xfe});
  wire::ParsedPacket packet;
  ASSERT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
  const wire::PacketHeader want = sampleHeader();
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
  wire::MessageHeader message;
  ASSERT_TRUE(wire::decodeMessageHeader(packet.body, &message));
  EXPECT_EQ(message.tag, ~0ull);
  EXPECT_EQ(message.totalLength, 100u);
  EXPECT_EQ(message.remoteOffset, 3u);
  EXPECT_EQ(message.chunkOffset, 50u);
  EXPECT_EQ(message.chunkLength, 5u);
  EXPECT_EQ(message.kind, 1u);
  EXPECT_EQ(message.flags, wire::kFlagGranted);
  EXPECT_EQ(packet.payload.size(), 5u);
}

TEST(Packet, AnyBitFlipped_IsNotAccepted) {
  auto datagram = sampleDatagram("hello");
  wire::ParsedPacket packet;
  for (std::size_t bit = 0; bit < datagram.size() * 8; ++bit) {
    datagram[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_NE(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk) << bit;
    datagram[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  EXPECT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
}

TEST(Packet, AnyTruncation_IsNotAccepted) {
  const auto datagram = sampleDatagram("hello");
  wire::ParsedPacket packet;
  for (std::size_t length = 0; length < datagram.size(); ++length) {
    const std::vector<std::byte> part(datagram.begin(), datagram.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_NE(wire::parsePacket(part, &packet), wire::ParseResult::kOk) << length;
  }
}

TEST(Packet, OtherVersion_IsTold) {
  wire::PacketWriter writer;
  wire::PacketHeader header;
  header.version = 2;
  header.type = wire::FrameType::kHello;
  writer.begin(header);
  writer.hello({});
  wire::ParsedPacket packet;
  EXPECT_EQ(wire::parsePacket(writer.finish(), &packet), wire::ParseResult::kOtherVersion);
  EXPECT_EQ(packet.header.version, 2);
}

// A memory link's datagram can change while it is being read.
TEST(Packet, DatagramOverwrittenAfterParsing_HeaderAndBodyStay) {
  auto datagram = sampleDatagram("hello");
  wire::ParsedPacket packet;
  ASSERT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
  std::fill(datagram.begin(), datagram.end(), std::byte{0xff});
  EXPECT_EQ(packet.sackRange(0).begin, 10u);
  wire::MessageHeader message;
  ASSERT_TRUE(wire::decodeMessageHeader(packet.body, &message));
  EXPECT_EQ(message.totalLength, 100u);
  EXPECT_EQ(message.chunkOffset, 50u);
}

TEST(Packet, HeaderLongerThanAny_IsNotAccepted) {
  std::vector<std::byte> datagram(4096);
  wire::PacketWriter writer;
  writer.begin(sampleHeader());
  const auto header = writer.finish();
  std::copy(header.begin(), header.end(), datagram.begin());
  wire::ParsedPacket packet;
  ASSERT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
  // With a checksum that fits, as only a hostile sender would make it.
  for (const std::size_t length : {wire::kMaxHeaderBytes, wire::kMaxHeaderBytes + 1, datagram.size()}) {
    storeLittle(&datagram[18], static_cast<std::uint16_t>(length));
    const std::uint32_t first = wire::crc32c(std::span(datagram).first(4));
    storeLittle(&datagram[4], wire::crc32c(std::span(datagram).subspan(8, length - 8), first));
    EXPECT_EQ(wire::parsePacket(datagram, &packet),
              length <= wire::kMaxHeaderBytes ? wire::ParseResult::kOk : wire::ParseResult::kCorrupted);
  }
}

TEST(Packet, RepairFrameAndCountOfRecovered_AreReadAsWritten) {
  wire::PacketWriter writer;
  wire::PacketHeader header;
  header.type = wire::FrameType::kRepair;
  writer.begin(header);
  writer.repairHeader({0xfffffffeu, 128, 7, 32});
  wire::ParsedPacket packet;
  ASSERT_EQ(wire::parsePacket(writer.finish(), &packet), wire::ParseResult::kOk);
  wire::RepairHeader repair;
  ASSERT_TRUE(wire::decodeRepairHeader(packet.body, &repair));
  EXPECT_EQ(repair.firstSequence, 0xfffffffeu);
  EXPECT_EQ(repair.sources, 128);
  EXPECT_EQ(repair.index, 7);
  EXPECT_EQ(repair.repairs, 32);
  EXPECT_FALSE(wire::decodeRepairHeader(packet.body.first(7), &repair));
  header.type = wire::FrameType::kAck;
  writer.begin(header);
  writer.addSackRange({1, 2});
  writer.recovered(77);
  ASSERT_EQ(wire::parsePacket(writer.finish(), &packet), wire::ParseResult::kOk);
  std::uint32_t recovered = 0;
  ASSERT_TRUE(wire::decodeRecovered(packet.body, &recovered));
  EXPECT_EQ(recovered, 77u);
  ASSERT_TRUE(wire::decodeRecovered({}, &recovered));
  EXPECT_EQ(recovered, 0u);
  EXPECT_FALSE(wire::decodeRecovered(packet.body.first(3), &recovered));
}

TEST(Packet, PieceOfAFrame_IsReadAsWritten) {
  wire::PacketWriter writer;
  wire::PacketHeader header;
  header.type = wire::FrameType::kPiece;
  writer.begin(header);
  writer.pieceHeader({0xfffffffeu, 65000, 57, true});
  wire::ParsedPacket packet;
  ASSERT_EQ(wire::parsePacket(writer.finish(), &packet), wire::ParseResult::kOk);
  wire::PieceHeader piece;
  ASSERT_TRUE(wire::decodePieceHeader(packet.body, &piece));
  EXPECT_EQ(piece.sequence, 0xfffffffeu);
  EXPECT_EQ(piece.symbolBytes, 65000);
  EXPECT_EQ(piece.index, 57);
  EXPECT_TRUE(piece.small);
  EXPECT_FALSE(wire::decodePieceHeader(packet.body.first(7), &piece));
  std::vector<std::byte> other(packet.body.begin(), packet.body.end());
  other[7] = std::byte{2};
  EXPECT_FALSE(wire::decodePieceHeader(other, &piece));
}

// The place of the limits holds the following fields.
TEST(Packet, ChunkWithAShortHeader_IsReadAsWritten) {
  for (const auto type : {wire::FrameType::kChunk, wire::FrameType::kGrantedChunk}) {
    wire::PacketWriter writer;
    wire::PacketHeader header = sampleHeader();
    header.type = type;
    header.flags |= wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(bytesOf("hello"));
    writer.begin(header);
    writer.chunkHeader({~0ull - 1, 1ull << 61});
    const auto written = writer.finish();
    ASSERT_EQ(written.size(), wire::dataHeaderBytes(type));
    EXPECT_EQ(written.size(), 60u);
    EXPECT_EQ(written[44], std::byte{0xfe});
    std::vector<std::byte> datagram(written.begin(), written.end());
    datagram.insert(datagram.end(), bytesOf("hello").begin(), bytesOf("hello").end());
    wire::ParsedPacket packet;
    packet.header.byteLimit = packet.header.messageLimit = 77;  // of a datagram before
    ASSERT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
    EXPECT_EQ(packet.header.type, type);
    EXPECT_EQ(packet.header.echoDelay, 8u);
    EXPECT_EQ(packet.header.messageLimit, 0u);
    EXPECT_EQ(packet.header.byteLimit, 0u);
    EXPECT_EQ(packet.sackCount(), 0u);
    EXPECT_EQ(packet.payload.size(), 5u);
    wire::ChunkHeader chunk;
    ASSERT_TRUE(wire::decodeChunkHeader(packet.body, &chunk));
    EXPECT_EQ(chunk.id, ~0ull - 1);
    EXPECT_EQ(chunk.offset, 1ull << 61);
    EXPECT_FALSE(wire::decodeChunkHeader(packet.body.first(15), &chunk));
    const auto outline = wire::outlinePacket(datagram, datagram.size());
    ASSERT_TRUE(outline);
    EXPECT_EQ(outline->type, type);
    EXPECT_EQ(outline->headerBytes, 60u);
    EXPECT_EQ(wire::outlineMessage(datagram, *outline)->id, ~0ull - 1);
    EXPECT_FALSE(wire::outlineMessage(datagram, *outline)->tag);
    EXPECT_FALSE(wire::outlineMessage(std::span(datagram).first(51), *outline));
    for (std::size_t length = 0; length < datagram.size(); ++length) {
      EXPECT_NE(wire::parsePacket(std::span(datagram).first(length), &packet), wire::ParseResult::kOk) << length;
    }
  }
}

// With checksums that fit, as only a hostile sender would make them.
TEST(Packet, ChunkWhoseRangesReachBeyondItsHeader_IsMalformed) {
  for (int ranges = 0; ranges <= 3; ++ranges) {
    wire::PacketWriter writer;
    wire::PacketHeader header;
    header.type = wire::FrameType::kChunk;
    writer.begin(header);
    for (int i = 0; i < ranges; ++i) writer.addSackRange({1, 2});
    writer.chunkHeader({1, 2});
    const auto written = writer.finish();
    std::vector<std::byte> datagram(written.begin(), written.end());
    wire::ParsedPacket packet;
    ASSERT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kOk);
    EXPECT_EQ(packet.sackCount(), static_cast<std::size_t>(ranges));
    EXPECT_EQ(packet.body.size(), wire::kChunkHeaderBytes);
    datagram[17] = static_cast<std::byte>(ranges + 3);  // one more than the body has room for
    const std::uint32_t first = wire::crc32c(std::span(datagram).first(4));
    storeLittle(&datagram[4], wire::crc32c(std::span(datagram).subspan(8), first));
    EXPECT_EQ(wire::parsePacket(datagram, &packet), wire::ParseResult::kMalformed);
  }
}

TEST(Packet, UnknownType_IsMalformed) {
  for (int type : {0, 8, 15, 24, 255}) {
    wire::PacketWriter writer;
    wire::PacketHeader header;
    header.type = static_cast<wire::FrameType>(type);
    writer.begin(header);
    wire::ParsedPacket packet;
    EXPECT_EQ(wire::parsePacket(writer.finish(), &packet), wire::ParseResult::kMalformed) << type;
  }
}

}  // namespace
}  // namespace gloo_bypass
