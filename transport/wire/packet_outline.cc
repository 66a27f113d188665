#include "transport/wire/packet_outline.h"

#include <algorithm>

#include "transport/base/byte_order.h"
#include "transport/wire/sealed_packet.h"

namespace gloo_bypass::wire {
namespace {

template <typename T>
std::optional<T> loadAt(std::span<const std::byte> bytes, std::size_t offset) {
  if (bytes.size() < offset + sizeof(T)) return {};
  return loadLittle<T>(bytes.data() + offset);
}

// Without the header's lengths: as if it had neither ranges nor padding.
std::optional<PacketOutline> outlineSealed(std::span<const std::byte> captured, std::size_t length) {
  const auto header = readSealedHeader(captured, length);
  if (!header || !isKnown(header->type)) return {};
  const std::size_t around = commonBytes(header->type) + kSealTagBytes;
  return PacketOutline{
      .sealed = true,
      .type = header->type,
      .receiverId = header->receiverId,
      .sequence = header->number,
      .headerBytes = std::min(isData(header->type) ? around + messageBytes(header->type) : around, length)};
}

}  // namespace

// packet.h has the table of offsets.
std::optional<PacketOutline> outlinePacket(std::span<const std::byte> captured, std::size_t length) {
  if (auto sealed = outlineSealed(captured, length)) return sealed;
  if (captured.size() < kOutlineBytes || length < kCommonHeaderBytes || length > kMaxDatagramBytes) return {};
  const std::byte* const p = captured.data();
  if (loadLittle<std::uint16_t>(p) != kWireMagic || loadLittle<std::uint8_t>(p + 2) != kWireVersion) return {};
  PacketOutline outline;
  outline.type = static_cast<FrameType>(loadLittle<std::uint8_t>(p + 3));
  outline.receiverId = loadLittle<std::uint64_t>(p + 8);
  outline.headerBytes = loadLittle<std::uint16_t>(p + 18);
  outline.sequence = loadLittle<std::uint32_t>(p + 24);
  outline.sackRanges = loadLittle<std::uint8_t>(p + 17);
  if (!isKnown(outline.type) || outline.sackRanges > kMaxSackRanges ||
      outline.headerBytes < commonBytes(outline.type) + 8 * outline.sackRanges ||
      outline.headerBytes > std::min(length, kMaxHeaderBytes)) {
    return {};
  }
  outline.damaged = captured.size() >= outline.headerBytes && !headerIsIntact(captured.first(outline.headerBytes));
  return outline;
}

std::optional<MessageOutline> outlineMessage(std::span<const std::byte> captured, const PacketOutline& outline) {
  if (outline.sealed || (!isData(outline.type) && outline.type != FrameType::kAnnounce)) return {};
  const std::size_t begin = commonBytes(outline.type) + 8 * outline.sackRanges;
  if (outline.headerBytes < begin + messageBytes(outline.type)) return {};
  const auto body = captured.subspan(std::min(begin, captured.size()));
  const auto id = loadAt<std::uint64_t>(body, 0);
  if (!id) return {};
  if (isChunk(outline.type)) return MessageOutline{.id = *id};
  return MessageOutline{.id = *id,
                        .tag = loadAt<std::uint64_t>(body, 8),
                        .totalLength = loadAt<std::uint64_t>(body, 16),
                        .chunkOffset = loadAt<std::uint64_t>(body, 32),
                        .chunkLength = loadAt<std::uint16_t>(body, 40)};
}

}  // namespace gloo_bypass::wire
