#include "transport/verbs/rdma_frame.h"

#include "transport/base/check.h"
#include "transport/base/fields.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::size_t kAnnounceBytes = 16;  // id and address, before the keys

bool isKnown(FrameType type) { return type >= FrameType::kEager && type <= FrameType::kBye; }

}  // namespace

std::size_t encodeFrame(const RdmaFrame& frame, std::span<std::byte> to) {
  const bool message = frame.type == FrameType::kEager || frame.type == FrameType::kAnnounce;
  const std::size_t keys = frame.type == FrameType::kAnnounce ? frame.rails : 0;
  const std::size_t bytes = kFrameHeaderBytes + (keys > 0 ? kAnnounceBytes + 4 * keys : 0);
  GLOO_BYPASS_CHECK(to.size() >= bytes && keys <= kMaxRails);
  FieldWriter writer(to.data());
  writer(frame.type, frame.key.kind, static_cast<std::uint16_t>(keys), frame.session, frame.slotsReturned);
  writer.skip(4);
  writer(frame.windowReturned, message ? frame.key.tag : frame.id, frame.length, frame.remoteOffset);
  if (keys > 0) writer(frame.id, frame.address);
  for (std::size_t i = 0; i < keys; ++i) writer(frame.remoteKeys[i]);
  return bytes;
}

std::optional<DecodedFrame> decodeFrame(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  DecodedFrame decoded;
  RdmaFrame& frame = decoded.frame;
  std::uint16_t keys = 0;
  FieldReader reader(bytes.data());
  reader(frame.type, frame.key.kind, keys, frame.session, frame.slotsReturned);
  reader.skip(4);
  reader(frame.windowReturned, frame.key.tag, frame.length, frame.remoteOffset);
  if (!isKnown(frame.type) || frame.key.kind > MessageKind::kBound) return std::nullopt;
  frame.id = frame.key.tag;
  const auto rest = bytes.subspan(kFrameHeaderBytes);
  switch (frame.type) {
    case FrameType::kEager:
      if (keys != 0 || frame.length != rest.size()) return std::nullopt;
      decoded.payload = rest;
      return decoded;
    case FrameType::kAnnounce:
      if (keys == 0 || keys > kMaxRails || rest.size() != kAnnounceBytes + 4 * std::size_t{keys}) return std::nullopt;
      reader(frame.id, frame.address);
      frame.rails = static_cast<std::uint8_t>(keys);
      for (std::size_t i = 0; i < keys; ++i) reader(frame.remoteKeys[i]);
      // No message extends beyond the end of the address space.
      if (frame.length > UINT64_MAX - frame.address) return std::nullopt;
      return decoded;
    default:
      if (keys != 0 || !rest.empty()) return std::nullopt;
      return decoded;
  }
}

}  // namespace gloo_bypass::verbs
