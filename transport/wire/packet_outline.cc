#include "transport/wire/packet_outline.h"

#include <algorithm>

#include "transport/base/byte_order.h"

namespace gloo_bypass::wire {

// packet.h has the table of offsets.
std::optional<PacketOutline> outlinePacket(std::span<const std::byte> captured, std::size_t length) {
  if (captured.size() < kOutlineBytes || length < kCommonHeaderBytes || length > kMaxDatagramBytes) return {};
  const std::byte* const p = captured.data();
  if (loadLittle<std::uint16_t>(p) != kWireMagic || loadLittle<std::uint8_t>(p + 2) != kWireVersion) return {};
  PacketOutline outline;
  outline.type = static_cast<FrameType>(loadLittle<std::uint8_t>(p + 3));
  outline.receiverId = loadLittle<std::uint64_t>(p + 8);
  outline.headerBytes = loadLittle<std::uint16_t>(p + 18);
  outline.sequence = loadLittle<std::uint32_t>(p + 24);
  const std::size_t ranges = loadLittle<std::uint8_t>(p + 17);
  if (!isKnown(outline.type) || ranges > kMaxSackRanges ||
      outline.headerBytes < commonBytes(outline.type) + 8 * ranges ||
      outline.headerBytes > std::min(length, kMaxHeaderBytes)) {
    return {};
  }
  return outline;
}

}  // namespace gloo_bypass::wire
