#include "transport/wire/packet.h"

#include <algorithm>
#include <cstring>

#include "transport/base/byte_order.h"
#include "transport/base/check.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass::wire {
namespace {

// Offsets within the common header; the table is in packet.h.
constexpr std::size_t kAtVersion = 2, kAtType = 3, kAtCrc = 4, kAtReceiver = 8, kAtFlags = 16, kAtRanges = 17,
                      kAtHeaderLength = 18, kAtPayloadCrc = 20, kAtSequence = 24, kAtAcknowledged = 28,
                      kAtTimestamp = 32, kAtEcho = 36, kAtEchoDelay = 40, kAtMessageLimit = 44, kAtByteLimit = 48;
static_assert(kAtByteLimit + 8 == kCommonHeaderBytes && kAtMessageLimit == kShortHeaderBytes);
// Every datagram has kCommonHeaderBytes.
static_assert(dataHeaderBytes(FrameType::kChunk) >= kCommonHeaderBytes);
static_assert(dataHeaderBytes(FrameType::kData) + kMaxPaddingBytes < kMinDatagramBytes);
static_assert(kCommonHeaderBytes + kHelloBytes <= kMaxHeaderBytes);

std::uint32_t headerChecksum(const std::byte* header, std::size_t length) {
  const std::uint32_t first = crc32c({header, kAtCrc});
  return crc32c({header + kAtReceiver, length - kAtReceiver}, first);
}

void loadCommon(const std::byte* p, PacketHeader* header) {
  header->version = loadLittle<std::uint8_t>(p + kAtVersion);
  header->type = static_cast<FrameType>(loadLittle<std::uint8_t>(p + kAtType));
  header->receiverId = loadLittle<std::uint64_t>(p + kAtReceiver);
  header->flags = loadLittle<std::uint8_t>(p + kAtFlags);
  header->payloadCrc = loadLittle<std::uint32_t>(p + kAtPayloadCrc);
  header->sequence = loadLittle<std::uint32_t>(p + kAtSequence);
  header->acknowledged = loadLittle<std::uint32_t>(p + kAtAcknowledged);
  header->timestamp = loadLittle<std::uint32_t>(p + kAtTimestamp);
  header->timestampEcho = loadLittle<std::uint32_t>(p + kAtEcho);
  header->echoDelay = loadLittle<std::uint32_t>(p + kAtEchoDelay);
  header->messageLimit = 0;
  header->byteLimit = 0;
  if (isChunk(header->type)) return;
  header->messageLimit = loadLittle<std::uint32_t>(p + kAtMessageLimit);
  header->byteLimit = loadLittle<std::uint64_t>(p + kAtByteLimit);
}

}  // namespace

SackRange ParsedPacket::sackRange(std::size_t i) const {
  const std::byte* p = sackBytes.data() + i * 8;
  return {loadLittle<std::uint32_t>(p), loadLittle<std::uint32_t>(p + 4)};
}

std::optional<std::uint64_t> peekReceiverId(std::span<const std::byte> datagram) {
  if (datagram.size() < kCommonHeaderBytes || loadLittle<std::uint16_t>(datagram.data()) != kWireMagic) return {};
  return loadLittle<std::uint64_t>(datagram.data() + kAtReceiver);
}

ParseResult parsePacket(std::span<const std::byte> datagram, ParsedPacket* out) {
  if (datagram.size() < kCommonHeaderBytes || datagram.size() > kMaxDatagramBytes) return ParseResult::kForeign;
  std::byte* const p = out->headerBytes.data();
  std::memcpy(p, datagram.data(), kCommonHeaderBytes);
  if (loadLittle<std::uint16_t>(p) != kWireMagic) return ParseResult::kForeign;
  const std::size_t headerBytes = loadLittle<std::uint16_t>(p + kAtHeaderLength);
  // A wrong length makes the checksum's extent wrong: corruption until the checksum says otherwise.
  if (headerBytes < kCommonHeaderBytes || headerBytes > std::min(datagram.size(), kMaxHeaderBytes)) {
    return ParseResult::kCorrupted;
  }
  std::memcpy(p + kCommonHeaderBytes, datagram.data() + kCommonHeaderBytes, headerBytes - kCommonHeaderBytes);
  if (headerChecksum(p, headerBytes) != loadLittle<std::uint32_t>(p + kAtCrc)) return ParseResult::kCorrupted;
  loadCommon(p, &out->header);
  if (out->header.version != kWireVersion) return ParseResult::kOtherVersion;
  const std::size_t sackBytes = 8 * std::size_t{loadLittle<std::uint8_t>(p + kAtRanges)};
  const std::size_t commonLength = commonBytes(out->header.type);
  if (sackBytes > 8 * kMaxSackRanges || sackBytes > headerBytes - commonLength) return ParseResult::kMalformed;
  if (!isKnown(out->header.type)) return ParseResult::kMalformed;
  const std::span<const std::byte> copied(p, headerBytes);
  out->sackBytes = copied.subspan(commonLength, sackBytes);
  out->body = copied.subspan(commonLength + sackBytes);
  out->payload = datagram.subspan(headerBytes);
  if ((out->header.flags & kFlagPayloadChecksum) != 0 && crc32c(out->payload) != out->header.payloadCrc) {
    return ParseResult::kCorrupted;
  }
  return ParseResult::kOk;
}

bool decodeMessageHeader(std::span<const std::byte> body, MessageHeader* out) {
  if (body.size() < kMessageHeaderBytes || body.size() > kMessageHeaderBytes + kMaxPaddingBytes) return false;
  const std::byte* p = body.data();
  out->id = loadLittle<std::uint64_t>(p);
  out->tag = loadLittle<std::uint64_t>(p + 8);
  out->totalLength = loadLittle<std::uint64_t>(p + 16);
  out->remoteOffset = loadLittle<std::uint64_t>(p + 24);
  out->chunkOffset = loadLittle<std::uint64_t>(p + 32);
  out->chunkLength = loadLittle<std::uint16_t>(p + 40);
  out->kind = loadLittle<std::uint8_t>(p + 42);
  out->flags = loadLittle<std::uint8_t>(p + 43);
  return true;
}

bool decodeChunkHeader(std::span<const std::byte> body, ChunkHeader* out) {
  if (body.size() != kChunkHeaderBytes) return false;
  out->id = loadLittle<std::uint64_t>(body.data());
  out->offset = loadLittle<std::uint64_t>(body.data() + 8);
  return true;
}

bool decodeNumber(std::span<const std::byte> body, std::uint64_t* out) {
  if (body.size() != 8) return false;
  *out = loadLittle<std::uint64_t>(body.data());
  return true;
}

bool decodeSize(std::span<const std::byte> body, std::uint16_t* out) {
  if (body.size() != 2) return false;
  *out = loadLittle<std::uint16_t>(body.data());
  return true;
}

bool decodeReason(std::span<const std::byte> body, std::uint32_t* out) {
  if (body.size() != 4) return false;
  *out = loadLittle<std::uint32_t>(body.data());
  return true;
}

bool decodeRecovered(std::span<const std::byte> body, std::uint32_t* out) {
  *out = 0;
  return body.empty() || decodeReason(body, out);
}

bool decodeRepairHeader(std::span<const std::byte> body, RepairHeader* out) {
  if (body.size() != kRepairHeaderBytes) return false;
  out->firstSequence = loadLittle<std::uint32_t>(body.data());
  out->sources = loadLittle<std::uint8_t>(body.data() + 4);
  out->index = loadLittle<std::uint8_t>(body.data() + 5);
  out->repairs = loadLittle<std::uint8_t>(body.data() + 6);
  return true;
}

bool decodePieceHeader(std::span<const std::byte> body, PieceHeader* out) {
  if (body.size() != kPieceHeaderBytes || loadLittle<std::uint8_t>(body.data() + 7) > 1) return false;
  out->sequence = loadLittle<std::uint32_t>(body.data());
  out->symbolBytes = loadLittle<std::uint16_t>(body.data() + 4);
  out->index = loadLittle<std::uint8_t>(body.data() + 6);
  out->small = loadLittle<std::uint8_t>(body.data() + 7) != 0;
  return true;
}

bool decodeHello(std::span<const std::byte> body, Hello* out) {
  if (body.size() != kHelloBytes) return false;
  const std::byte* p = body.data();
  out->senderId = loadLittle<std::uint64_t>(p);
  out->rendezvousBytes = loadLittle<std::uint64_t>(p + 8);
  out->maxBufferBytes = loadLittle<std::uint64_t>(p + 16);
  out->initialSequence = loadLittle<std::uint32_t>(p + 24);
  out->maxDatagramBytes = loadLittle<std::uint32_t>(p + 28);
  out->lossless = loadLittle<std::uint8_t>(p + 32);
  out->payloadChecksum = loadLittle<std::uint8_t>(p + 33);
  out->capabilities = loadLittle<std::uint8_t>(p + 34);
  return true;
}

void PacketWriter::begin(const PacketHeader& header) {
  std::byte* p = bytes_.data();
  storeLittle(p, kWireMagic);
  storeLittle(p + kAtVersion, header.version);
  storeLittle(p + kAtType, static_cast<std::uint8_t>(header.type));
  storeLittle(p + kAtReceiver, header.receiverId);
  storeLittle(p + kAtFlags, header.flags);
  storeLittle(p + kAtPayloadCrc, header.payloadCrc);
  storeLittle(p + kAtSequence, header.sequence);
  storeLittle(p + kAtAcknowledged, header.acknowledged);
  storeLittle(p + kAtTimestamp, header.timestamp);
  storeLittle(p + kAtEcho, header.timestampEcho);
  storeLittle(p + kAtEchoDelay, header.echoDelay);
  length_ = commonBytes(header.type);
  ranges_ = 0;
  if (isChunk(header.type)) return;
  storeLittle(p + kAtMessageLimit, header.messageLimit);
  storeLittle(p + kAtByteLimit, header.byteLimit);
}

void PacketWriter::addSackRange(SackRange range) {
  const auto type = static_cast<FrameType>(loadLittle<std::uint8_t>(bytes_.data() + kAtType));
  GLOO_BYPASS_CHECK(ranges_ < kMaxSackRanges && length_ == commonBytes(type) + 8u * ranges_);
  storeLittle(bytes_.data() + length_, range.begin);
  storeLittle(bytes_.data() + length_ + 4, range.end);
  length_ += 8;
  ++ranges_;
}

void PacketWriter::messageHeader(const MessageHeader& message) {
  std::byte* p = bytes_.data() + length_;
  storeLittle(p, message.id);
  storeLittle(p + 8, message.tag);
  storeLittle(p + 16, message.totalLength);
  storeLittle(p + 24, message.remoteOffset);
  storeLittle(p + 32, message.chunkOffset);
  storeLittle(p + 40, message.chunkLength);
  storeLittle(p + 42, message.kind);
  storeLittle(p + 43, message.flags);
  length_ += kMessageHeaderBytes;
}

void PacketWriter::chunkHeader(const ChunkHeader& chunk) {
  storeLittle(bytes_.data() + length_, chunk.id);
  storeLittle(bytes_.data() + length_ + 8, chunk.offset);
  length_ += kChunkHeaderBytes;
}

void PacketWriter::padding(std::size_t bytes) {
  GLOO_BYPASS_CHECK(bytes <= kMaxPaddingBytes);
  std::fill_n(bytes_.data() + length_, bytes, std::byte{0});
  length_ += bytes;
}

void PacketWriter::number(std::uint64_t value) {
  storeLittle(bytes_.data() + length_, value);
  length_ += 8;
}

void PacketWriter::size(std::uint16_t value) {
  storeLittle(bytes_.data() + length_, value);
  length_ += 2;
}

void PacketWriter::reason(std::uint32_t value) {
  storeLittle(bytes_.data() + length_, value);
  length_ += 4;
}

void PacketWriter::recovered(std::uint32_t frames) { reason(frames); }

void PacketWriter::repairHeader(const RepairHeader& repair) {
  std::byte* p = bytes_.data() + length_;
  storeLittle(p, repair.firstSequence);
  storeLittle(p + 4, repair.sources);
  storeLittle(p + 5, repair.index);
  storeLittle(p + 6, repair.repairs);
  storeLittle(p + 7, std::uint8_t{0});
  length_ += kRepairHeaderBytes;
}

void PacketWriter::pieceHeader(const PieceHeader& piece) {
  std::byte* p = bytes_.data() + length_;
  storeLittle(p, piece.sequence);
  storeLittle(p + 4, piece.symbolBytes);
  storeLittle(p + 6, piece.index);
  storeLittle(p + 7, static_cast<std::uint8_t>(piece.small));
  length_ += kPieceHeaderBytes;
}

void PacketWriter::hello(const Hello& hello) {
  std::byte* p = bytes_.data() + length_;
  storeLittle(p, hello.senderId);
  storeLittle(p + 8, hello.rendezvousBytes);
  storeLittle(p + 16, hello.maxBufferBytes);
  storeLittle(p + 24, hello.initialSequence);
  storeLittle(p + 28, hello.maxDatagramBytes);
  storeLittle(p + 32, hello.lossless);
  storeLittle(p + 33, hello.payloadChecksum);
  storeLittle(p + 34, hello.capabilities);
  for (std::size_t i = 35; i < kHelloBytes; ++i) p[i] = std::byte{0};
  length_ += kHelloBytes;
}

std::span<const std::byte> PacketWriter::finish() {
  storeLittle(bytes_.data() + kAtRanges, ranges_);
  storeLittle(bytes_.data() + kAtHeaderLength, static_cast<std::uint16_t>(length_));
  storeLittle(bytes_.data() + kAtCrc, headerChecksum(bytes_.data(), length_));
  return {bytes_.data(), length_};
}

}  // namespace gloo_bypass::wire
