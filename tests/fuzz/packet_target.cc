#include <algorithm>
#include <optional>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/byte_order.h"
#include "transport/base/check.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::fuzz {
namespace {

// Writes the decoded body. Returns how many of its bytes have a meaning; nullopt if it was not decoded.
std::optional<std::size_t> writeBody(const wire::ParsedPacket& packet, wire::PacketWriter& writer) {
  const std::span<const std::byte> body = packet.body;
  switch (packet.header.type) {
    case wire::FrameType::kHello:
      if (wire::Hello hello; wire::decodeHello(body, &hello)) {
        writer.hello(hello);
        return 35;
      }
      return {};
    case wire::FrameType::kAck:
      if (std::uint32_t frames; wire::decodeRecovered(body, &frames)) {
        if (!body.empty()) writer.recovered(frames);
        return body.size();
      }
      return {};
    case wire::FrameType::kProbe:
    case wire::FrameType::kProbeReply:
      if (std::uint16_t size; wire::decodeSize(body, &size)) {
        writer.size(size);
        return body.size();
      }
      return {};
    case wire::FrameType::kReset:
      if (std::uint32_t reason; wire::decodeReason(body, &reason)) {
        writer.reason(reason);
        return body.size();
      }
      return {};
    case wire::FrameType::kRepair:
      if (wire::RepairHeader repair; wire::decodeRepairHeader(body, &repair)) {
        writer.repairHeader(repair);
        return 7;
      }
      return {};
    case wire::FrameType::kPiece:
      if (wire::PieceHeader piece; wire::decodePieceHeader(body, &piece)) {
        writer.pieceHeader(piece);
        return 7;
      }
      return {};
    case wire::FrameType::kData:
    case wire::FrameType::kAnnounce:
      if (wire::MessageHeader message; wire::decodeMessageHeader(body, &message)) {
        writer.messageHeader(message);
        writer.padding(body.size() - wire::kMessageHeaderBytes);
        return wire::kMessageHeaderBytes;
      }
      return {};
    case wire::FrameType::kChunk:
    case wire::FrameType::kGrantedChunk:
      if (wire::ChunkHeader chunk; wire::decodeChunkHeader(body, &chunk)) {
        writer.chunkHeader(chunk);
        return wire::kChunkHeaderBytes;
      }
      return {};
    case wire::FrameType::kGrant:
    case wire::FrameType::kWithdraw:
    case wire::FrameType::kClose:
      if (std::uint64_t number; wire::decodeNumber(body, &number)) {
        writer.number(number);
        return body.size();
      }
      return {};
    case wire::FrameType::kCredit:
      if (!body.empty()) return {};
      return 0;
  }
  GLOO_BYPASS_CHECK(false);  // a type that parsePacket does not know
  return {};
}

// Every part must lie inside the datagram, whatever the bytes say.
void parse(std::span<const std::byte> datagram) {
  constexpr std::size_t kAtCrc = 4, kAtReceiver = 8;
  wire::ParsedPacket packet;
  if (wire::parsePacket(datagram, &packet) != wire::ParseResult::kOk) return;
  const std::size_t commonLength = wire::commonBytes(packet.header.type);
  GLOO_BYPASS_CHECK(commonLength + packet.sackBytes.size() + packet.body.size() + packet.payload.size() ==
                    datagram.size());
  GLOO_BYPASS_CHECK(packet.payload.data() + packet.payload.size() == datagram.data() + datagram.size());
  wire::PacketWriter writer;
  writer.begin(packet.header);
  for (std::size_t i = 0; i < packet.sackCount(); ++i) writer.addSackRange(packet.sackRange(i));
  const auto meant = writeBody(packet, writer);
  if (!meant) return;
  // Encoding the decoded packet must give the same bytes, except for padding and reserved fields, and so the checksum.
  const std::span<const std::byte> header = writer.finish();
  std::vector<std::byte> again(header.begin(), header.end());
  again.insert(again.end(), packet.payload.begin(), packet.payload.end());
  GLOO_BYPASS_CHECK(again.size() == datagram.size());
  const std::size_t bodyAt = commonLength + packet.sackBytes.size();
  const auto same = [&](std::size_t from, std::size_t to) {
    const auto part = std::span<const std::byte>(again).subspan(from, to - from);
    return std::equal(part.begin(), part.end(), datagram.begin() + static_cast<std::ptrdiff_t>(from));
  };
  GLOO_BYPASS_CHECK(same(0, kAtCrc) && same(kAtReceiver, bodyAt + *meant));
  wire::ParsedPacket reparsed;
  GLOO_BYPASS_CHECK(wire::parsePacket(again, &reparsed) == wire::ParseResult::kOk);
}

}  // namespace

void fixChecksums(std::vector<std::byte>& datagram) {
  constexpr std::size_t kAtCrc = 4, kAtReceiver = 8, kAtFlags = 16, kAtHeaderLength = 18, kAtPayloadCrc = 20;
  if (datagram.size() < wire::kCommonHeaderBytes) return;
  std::byte* const p = datagram.data();
  const std::size_t headerBytes = loadLittle<std::uint16_t>(p + kAtHeaderLength);
  if (headerBytes < wire::kCommonHeaderBytes || headerBytes > datagram.size()) return;
  if ((loadLittle<std::uint8_t>(p + kAtFlags) & wire::kFlagPayloadChecksum) != 0) {
    storeLittle(p + kAtPayloadCrc, wire::crc32c(std::span(datagram).subspan(headerBytes)));
  }
  const std::uint32_t first = wire::crc32c({p, kAtCrc});
  storeLittle(p + kAtCrc, wire::crc32c({p + kAtReceiver, headerBytes - kAtReceiver}, first));
}

void fuzzPacket(std::span<const std::uint8_t> input) {
  const std::span<const std::byte> bytes = std::as_bytes(input);
  // A copy of exactly this size, so that reading beyond it is detected.
  std::vector<std::byte> datagram(bytes.begin(), bytes.end());
  parse(datagram);
  (void)wire::peekReceiverId(datagram);
  if (datagram.size() >= 4) {
    storeLittle(datagram.data(), wire::kWireMagic);
    storeLittle(datagram.data() + 2, wire::kWireVersion);
  }
  fixChecksums(datagram);
  parse(datagram);
}

}  // namespace gloo_bypass::fuzz
