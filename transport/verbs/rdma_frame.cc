#include "transport/verbs/rdma_frame.h"

#include "transport/base/byte_order.h"
#include "transport/base/check.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::size_t kAnnounceBytes = 16;  // id and address, before the keys

bool knownType(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(FrameType::kEager) && type <= static_cast<std::uint8_t>(FrameType::kBye);
}

}  // namespace

std::size_t encodeFrame(const RdmaFrame& frame, std::span<std::byte> to) {
  const bool message = frame.type == FrameType::kEager || frame.type == FrameType::kAnnounce;
  const std::size_t keys = frame.type == FrameType::kAnnounce ? frame.rails : 0;
  const std::size_t bytes = kFrameHeaderBytes + (keys > 0 ? kAnnounceBytes + 4 * keys : 0);
  GLOO_BYPASS_CHECK(to.size() >= bytes && keys <= kMaxRails);
  std::byte* p = to.data();
  storeLittle(p, static_cast<std::uint8_t>(frame.type));
  storeLittle(p + 1, static_cast<std::uint8_t>(frame.key.kind));
  storeLittle(p + 2, static_cast<std::uint16_t>(keys));
  storeLittle(p + 4, frame.session);
  storeLittle(p + 8, frame.slotsReturned);
  storeLittle(p + 12, std::uint32_t{0});
  storeLittle(p + 16, frame.windowReturned);
  storeLittle(p + 24, message ? frame.key.tag : frame.id);
  storeLittle(p + 32, frame.length);
  storeLittle(p + 40, frame.remoteOffset);
  if (keys > 0) {
    p += kFrameHeaderBytes;
    storeLittle(p, frame.id);
    storeLittle(p + 8, frame.address);
    for (std::size_t i = 0; i < keys; ++i) storeLittle(p + kAnnounceBytes + 4 * i, frame.remoteKeys[i]);
  }
  return bytes;
}

std::optional<DecodedFrame> decodeFrame(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  const std::byte* p = bytes.data();
  const auto type = loadLittle<std::uint8_t>(p), kind = loadLittle<std::uint8_t>(p + 1);
  const auto keys = loadLittle<std::uint16_t>(p + 2);
  if (!knownType(type) || kind > static_cast<std::uint8_t>(MessageKind::kBound)) return std::nullopt;
  DecodedFrame decoded;
  RdmaFrame& frame = decoded.frame;
  frame.type = static_cast<FrameType>(type);
  frame.session = loadLittle<std::uint32_t>(p + 4);
  frame.slotsReturned = loadLittle<std::uint32_t>(p + 8);
  frame.windowReturned = loadLittle<std::uint64_t>(p + 16);
  frame.key = {static_cast<MessageKind>(kind), loadLittle<std::uint64_t>(p + 24)};
  frame.id = frame.key.tag;
  frame.length = loadLittle<std::uint64_t>(p + 32);
  frame.remoteOffset = loadLittle<std::uint64_t>(p + 40);
  const auto rest = bytes.subspan(kFrameHeaderBytes);
  switch (frame.type) {
    case FrameType::kEager:
      if (keys != 0 || frame.length != rest.size()) return std::nullopt;
      decoded.payload = rest;
      return decoded;
    case FrameType::kAnnounce:
      if (keys == 0 || keys > kMaxRails || rest.size() != kAnnounceBytes + 4 * std::size_t{keys}) return std::nullopt;
      frame.id = loadLittle<std::uint64_t>(rest.data());
      frame.address = loadLittle<std::uint64_t>(rest.data() + 8);
      frame.rails = static_cast<std::uint8_t>(keys);
      for (std::size_t i = 0; i < keys; ++i) {
        frame.remoteKeys[i] = loadLittle<std::uint32_t>(rest.data() + kAnnounceBytes + 4 * i);
      }
      // No message extends beyond the end of the address space.
      if (frame.length > UINT64_MAX - frame.address) return std::nullopt;
      return decoded;
    default:
      if (keys != 0 || !rest.empty()) return std::nullopt;
      return decoded;
  }
}

}  // namespace gloo_bypass::verbs
