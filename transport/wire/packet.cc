#include "transport/wire/packet.h"

#include <algorithm>
#include <cstring>

#include "transport/base/byte_order.h"
#include "transport/base/check.h"
#include "transport/base/fields.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass::wire {
namespace {

// Offsets within the common header; the table is in packet.h.
constexpr std::size_t kAtVersion = 2, kAtType = 3, kAtCrc = 4, kAtReceiver = 8, kAtRanges = 17, kAtHeaderLength = 18,
                      kAtPayloadCrc = 20;
// Every datagram has kCommonHeaderBytes.
static_assert(dataHeaderBytes(FrameType::kChunk) >= kCommonHeaderBytes);
static_assert(dataHeaderBytes(FrameType::kData) + kMaxPaddingBytes < kMinDatagramBytes);
static_assert(kCommonHeaderBytes + kHelloBytes <= kMaxHeaderBytes);

std::uint32_t headerChecksum(const std::byte* header, std::size_t length) {
  const std::uint32_t first = crc32c({header, kAtCrc});
  return crc32c({header + kAtReceiver, length - kAtReceiver}, first);
}

// The fields in their order on the wire, for both directions; the tables are in packet.h.
constexpr auto kCommonFields = [](auto& fields, auto& h) {
  fields(h.version, h.type);
  fields.skip(kAtReceiver - kAtCrc);
  fields(h.receiverId, h.flags);
  fields.skip(kAtPayloadCrc - kAtRanges);
  fields(h.payloadCrc, h.sequence, h.acknowledged, h.timestamp, h.timestampEcho, h.echoDelay);
  if (!isChunk(h.type)) fields(h.messageLimit, h.byteLimit);
};
constexpr auto kMessageFields = [](auto& fields, auto& m) {
  fields(m.id, m.tag, m.totalLength, m.remoteOffset, m.chunkOffset, m.chunkLength, m.kind, m.flags);
};
constexpr auto kChunkFields = [](auto& fields, auto& c) { fields(c.id, c.offset); };
constexpr auto kRepairFields = [](auto& fields, auto& r) {
  fields(r.firstSequence, r.sources, r.index, r.repairs);
  fields.skip(1);
};
constexpr auto kPieceFields = [](auto& fields, auto& p) { fields(p.sequence, p.symbolBytes, p.index, p.small); };
constexpr auto kHelloFields = [](auto& fields, auto& h) {
  fields(h.senderId, h.rendezvousBytes, h.maxBufferBytes, h.initialSequence, h.maxDatagramBytes, h.lossless,
         h.payloadChecksum, h.capabilities);
  fields.skip(5);
};
constexpr auto kValueField = [](auto& fields, auto& value) { fields(value); };
static_assert(kAtVersion + fieldBytes<PacketHeader>(kCommonFields) == kCommonHeaderBytes);
static_assert(fieldBytes<MessageHeader>(kMessageFields) == kMessageHeaderBytes);
static_assert(fieldBytes<ChunkHeader>(kChunkFields) == kChunkHeaderBytes);
static_assert(fieldBytes<RepairHeader>(kRepairFields) == kRepairHeaderBytes);
static_assert(fieldBytes<PieceHeader>(kPieceFields) == kPieceHeaderBytes);
static_assert(fieldBytes<Hello>(kHelloFields) == kHelloBytes);

// False: the body has another length.
template <typename List, typename Structure>
bool decode(std::span<const std::byte> body, const List& list, Structure* out) {
  if (body.size() != fieldBytes<Structure>(list)) return false;
  FieldReader reader(body.data());
  list(reader, *out);
  return true;
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

bool headerIsIntact(std::span<const std::byte> header) {
  return headerChecksum(header.data(), header.size()) == loadLittle<std::uint32_t>(header.data() + kAtCrc);
}

ParseResult parsePacket(std::span<const std::byte> datagram, ParsedPacket* out, HeaderChecksum checksum) {
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
  if (checksum == HeaderChecksum::kCrc32c && !headerIsIntact({p, headerBytes})) {
    return ParseResult::kCorrupted;
  }
  FieldReader reader(p + kAtVersion);
  out->header.messageLimit = 0;
  out->header.byteLimit = 0;
  kCommonFields(reader, out->header);
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
  if (body.size() > kMessageHeaderBytes + kMaxPaddingBytes) return false;
  return decode(body.first(std::min(body.size(), kMessageHeaderBytes)), kMessageFields, out);
}
bool decodeChunkHeader(std::span<const std::byte> body, ChunkHeader* out) { return decode(body, kChunkFields, out); }
bool decodeNumber(std::span<const std::byte> body, std::uint64_t* out) { return decode(body, kValueField, out); }
bool decodeSize(std::span<const std::byte> body, std::uint16_t* out) { return decode(body, kValueField, out); }
bool decodeReason(std::span<const std::byte> body, std::uint32_t* out) { return decode(body, kValueField, out); }
bool decodeRecovered(std::span<const std::byte> body, std::uint32_t* out) {
  *out = 0;
  return body.empty() || decode(body, kValueField, out);
}
bool decodeRepairHeader(std::span<const std::byte> body, RepairHeader* out) { return decode(body, kRepairFields, out); }
bool decodePieceHeader(std::span<const std::byte> body, PieceHeader* out) {
  return decode(body, kPieceFields, out) && body.back() <= std::byte{1};
}
bool decodeHello(std::span<const std::byte> body, Hello* out) { return decode(body, kHelloFields, out); }

void PacketWriter::begin(const PacketHeader& header) {
  storeLittle(bytes_.data(), kWireMagic);
  FieldWriter writer(bytes_.data() + kAtVersion);
  kCommonFields(writer, header);
  length_ = commonBytes(header.type);
  ranges_ = 0;
}

void PacketWriter::addSackRange(SackRange range) {
  const auto type = static_cast<FrameType>(loadLittle<std::uint8_t>(bytes_.data() + kAtType));
  GLOO_BYPASS_CHECK(ranges_ < kMaxSackRanges && length_ == commonBytes(type) + 8u * ranges_);
  storeLittle(bytes_.data() + length_, range.begin);
  storeLittle(bytes_.data() + length_ + 4, range.end);
  length_ += 8;
  ++ranges_;
}

template <typename List, typename Structure>
void PacketWriter::append(const List& list, const Structure& structure) {
  FieldWriter writer(bytes_.data() + length_);
  list(writer, structure);
  length_ += fieldBytes<Structure>(list);
}

void PacketWriter::messageHeader(const MessageHeader& message) { append(kMessageFields, message); }
void PacketWriter::chunkHeader(const ChunkHeader& chunk) { append(kChunkFields, chunk); }
void PacketWriter::number(std::uint64_t value) { append(kValueField, value); }
void PacketWriter::size(std::uint16_t value) { append(kValueField, value); }
void PacketWriter::reason(std::uint32_t value) { append(kValueField, value); }
void PacketWriter::recovered(std::uint32_t frames) { append(kValueField, frames); }
void PacketWriter::repairHeader(const RepairHeader& repair) { append(kRepairFields, repair); }
void PacketWriter::pieceHeader(const PieceHeader& piece) { append(kPieceFields, piece); }
void PacketWriter::hello(const Hello& hello) { append(kHelloFields, hello); }

void PacketWriter::padding(std::size_t bytes) {
  GLOO_BYPASS_CHECK(bytes <= kMaxPaddingBytes);
  std::fill_n(bytes_.data() + length_, bytes, std::byte{0});
  length_ += bytes;
}

std::span<const std::byte> PacketWriter::finish(HeaderChecksum checksum) {
  storeLittle(bytes_.data() + kAtRanges, ranges_);
  storeLittle(bytes_.data() + kAtHeaderLength, static_cast<std::uint16_t>(length_));
  storeLittle(bytes_.data() + kAtCrc,
              checksum == HeaderChecksum::kCrc32c ? headerChecksum(bytes_.data(), length_) : std::uint32_t{0});
  return {bytes_.data(), length_};
}

}  // namespace gloo_bypass::wire
