#include "transport/wire/sealed_packet.h"

#include <gtest/gtest.h>

#include <vector>

#include "transport/wire/packet_outline.h"

namespace gloo_bypass::wire {
namespace {

constexpr std::size_t kShortest = kCommonHeaderBytes + kSealTagBytes;

std::vector<std::byte> sealedDatagram(const SealedHeader& header, std::size_t length = kShortest) {
  std::vector<std::byte> datagram(length);
  writeSealedHeader(header, std::span(datagram).first(kSealedHeaderBytes));
  return datagram;
}

TEST(SealedPacket, RoundTrip_KeepsEveryFieldOfEveryType) {
  for (int type = 0; type < 128; ++type) {
    for (const bool phase : {false, true}) {
      const SealedHeader header{static_cast<FrameType>(type), phase, 0x89abcdef, 0x1122334455667788};
      const auto parsed = parseSealedHeader(sealedDatagram(header));
      ASSERT_TRUE(parsed);
      EXPECT_EQ(parsed->type, header.type);
      EXPECT_EQ(parsed->keyPhase, phase);
      EXPECT_EQ(parsed->number, header.number);
      EXPECT_EQ(parsed->receiverId, header.receiverId);
    }
  }
}

TEST(SealedPacket, Bytes_AreAsDocumented) {
  const auto datagram = sealedDatagram({FrameType::kHello, true, 0x04030201, 0x0807060504030201});
  const std::vector<unsigned> expected{0x67, 0x42, 2, 0x81, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(datagram[i]), expected[i]) << i;
}

TEST(SealedPacket, ReceiverId_IsWhereThatOfAPlainDatagramIs) {
  EXPECT_EQ(peekReceiverId(sealedDatagram({.receiverId = 42})), 42u);
  std::vector<std::byte> plain(kCommonHeaderBytes);
  writePlainBeginning(FrameType::kData, 42, std::span(plain).first(kSealedHeaderBytes));
  EXPECT_EQ(peekReceiverId(plain), 42u);
  EXPECT_EQ(typeOf(plain), FrameType::kData);
  EXPECT_EQ(receiverIdOf(plain), 42u);
}

TEST(SealedPacket, PlainOrShortOrLong_IsNone) {
  std::vector<std::byte> plain(kShortest);
  writePlainBeginning(FrameType::kData, 42, std::span(plain).first(kSealedHeaderBytes));
  EXPECT_FALSE(parseSealedHeader(plain));
  const auto sealed = sealedDatagram({});
  EXPECT_TRUE(parseSealedHeader(sealed));
  for (std::size_t length = 0; length < kShortest; ++length) {
    EXPECT_FALSE(parseSealedHeader(std::span(sealed).first(length))) << length;
  }
  EXPECT_FALSE(parseSealedHeader(sealedDatagram({}, kMaxDatagramBytes + 1)));
  auto otherMagic = sealed;
  otherMagic[0] ^= std::byte{1};
  EXPECT_FALSE(parseSealedHeader(otherMagic));
}

// A rank without sealing drops it as corrupted, since the packet number is no checksum of the header.
TEST(SealedPacket, ReadAsAPlainOne_IsCorrupted) {
  ParsedPacket packet;
  EXPECT_NE(parsePacket(sealedDatagram({.number = 7}), &packet), ParseResult::kOk);
}

// For captures: how many bytes of a message a sealed datagram carries, from its beginning.
TEST(SealedPacket, Outline_HasTypeReceiverNumberAndThePayloadsLength) {
  const std::size_t length = dataHeaderBytes(FrameType::kChunk) + 1000 + kSealTagBytes;
  const auto datagram = sealedDatagram({FrameType::kChunk, true, 7, 42}, length);
  const auto outline = outlinePacket(std::span(datagram).first(kOutlineBytes), length);
  ASSERT_TRUE(outline);
  EXPECT_EQ(outline->type, FrameType::kChunk);
  EXPECT_EQ(outline->receiverId, 42u);
  EXPECT_EQ(outline->sequence, 7u);
  EXPECT_EQ(length - outline->headerBytes, 1000u);
  EXPECT_TRUE(outline->sealed);
  EXPECT_FALSE(outlineMessage(datagram, *outline)) << "it is encrypted";
  EXPECT_FALSE(outlinePacket(sealedDatagram({.type = static_cast<FrameType>(100)}), kShortest));
}

// As sealing leaves it: the header has no checksum.
TEST(SealedPacket, OpenedHeaderWithoutAChecksum_IsReadOnlyWhereNoneIsExpected) {
  PacketHeader header;
  header.receiverId = 42;
  header.acknowledged = 7;
  PacketWriter writer;
  writer.begin(header);
  const auto written = writer.finish(HeaderChecksum::kNone);
  ParsedPacket packet;
  EXPECT_EQ(parsePacket(written, &packet), ParseResult::kCorrupted);
  ASSERT_EQ(parsePacket(written, &packet, HeaderChecksum::kNone), ParseResult::kOk);
  EXPECT_EQ(packet.header.acknowledged, 7u);
}

}  // namespace
}  // namespace gloo_bypass::wire
