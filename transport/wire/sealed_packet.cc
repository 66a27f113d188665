#include "transport/wire/sealed_packet.h"

#include "transport/base/check.h"
#include "transport/base/fields.h"

namespace gloo_bypass::wire {
namespace {

constexpr std::uint8_t kPhaseBit = 0x80;
constexpr std::size_t kAtType = 3, kAtReceiver = 8;
static_assert(static_cast<std::uint8_t>(FrameType::kGrantedChunk) < kPhaseBit);
static_assert(kSealedHeaderBytes <= kShortHeaderBytes);

void write(std::uint8_t version, std::uint8_t type, std::uint32_t number, std::uint64_t receiverId,
           std::span<std::byte> out) {
  GLOO_BYPASS_CHECK(out.size() == kSealedHeaderBytes);
  FieldWriter writer(out.data());
  writer(kWireMagic, version, type, number, receiverId);
}

}  // namespace

void writeSealedHeader(const SealedHeader& header, std::span<std::byte> out) {
  const auto type = static_cast<std::uint8_t>(header.type);
  write(kSealedWireVersion, static_cast<std::uint8_t>(header.keyPhase ? type | kPhaseBit : type), header.number,
        header.receiverId, out);
}

std::optional<SealedHeader> parseSealedHeader(std::span<const std::byte> datagram) {
  return readSealedHeader(datagram, datagram.size());
}

std::optional<SealedHeader> readSealedHeader(std::span<const std::byte> beginning, std::size_t length) {
  if (beginning.size() < kSealedHeaderBytes || length < kCommonHeaderBytes + kSealTagBytes ||
      length > kMaxDatagramBytes) {
    return {};
  }
  std::uint16_t magic = 0;
  std::uint8_t version = 0, type = 0;
  SealedHeader header;
  FieldReader reader(beginning.data());
  reader(magic, version, type, header.number, header.receiverId);
  if (magic != kWireMagic || version != kSealedWireVersion) return {};
  header.keyPhase = (type & kPhaseBit) != 0;
  header.type = static_cast<FrameType>(type & ~kPhaseBit);
  return header;
}

FrameType typeOf(std::span<const std::byte> header) {
  return static_cast<FrameType>(loadLittle<std::uint8_t>(header.data() + kAtType));
}
std::uint64_t receiverIdOf(std::span<const std::byte> header) {
  return loadLittle<std::uint64_t>(header.data() + kAtReceiver);
}

void writePlainBeginning(FrameType type, std::uint64_t receiverId, std::span<std::byte> out) {
  write(kWireVersion, static_cast<std::uint8_t>(type), 0, receiverId, out);
}

}  // namespace gloo_bypass::wire
