#include "transport/pairs/pair_address.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "transport/base/byte_order.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::pairs {
namespace {

constexpr std::array<char, 4> kMagic = {'G', 'B', 'P', 'R'};
constexpr std::uint8_t kPlainVersion = 1, kKeyedVersion = 2;
constexpr std::size_t kLengthBytes = sizeof(std::uint16_t);
constexpr std::size_t kVersionAt = kMagic.size(), kSessionAt = kVersionAt + 1, kLengthAt = kSessionAt + 8,
                      kFixedBytes = kLengthAt + kLengthBytes;

}  // namespace

Result<std::vector<std::byte>> encodePairAddress(const PairAddress& address) {
  const std::vector<std::byte>&memory = address.memory.portAddress, &network = address.network.portAddress;
  const std::vector<std::byte>& offer = address.network.offer;
  const bool keyed = !offer.empty();
  ChannelAddress joint{.sessionId = address.memory.sessionId,
                       .portAddress = std::vector<std::byte>(kFixedBytes),
                       .description = address.memory.description,
                       .offer = address.memory.offer};
  std::byte* const fixed = joint.portAddress.data();
  std::memcpy(fixed, kMagic.data(), kMagic.size());
  fixed[kVersionAt] = std::byte{keyed ? kKeyedVersion : kPlainVersion};
  storeLittle(fixed + kSessionAt, address.network.sessionId);
  storeLittle(fixed + kLengthAt, static_cast<std::uint16_t>(memory.size()));
  joint.portAddress.insert(joint.portAddress.end(), memory.begin(), memory.end());
  if (keyed) {
    std::array<std::byte, kLengthBytes> length;
    storeLittle(length.data(), static_cast<std::uint16_t>(offer.size()));
    joint.portAddress.insert(joint.portAddress.end(), length.begin(), length.end());
    joint.portAddress.insert(joint.portAddress.end(), offer.begin(), offer.end());
  }
  joint.portAddress.insert(joint.portAddress.end(), network.begin(), network.end());
  if (joint.portAddress.size() <= kMaxPortAddressBytes) {
    std::vector<std::byte> bytes = encodeChannelAddress(joint);
    if (bytes.size() <= MessageChannel::kMaxAddressBytes) return bytes;
  }
  return Error{
      ErrorScope::kDevice, ErrorCode::kExhausted,
      fmt::format("the addresses of this rank's memory links ({} bytes) and of its RDMA devices ({} bytes) are too "
                  "long together: shorten GLOO_BYPASS_MEMIF_DIRECTORY, or name fewer devices in "
                  "GLOO_BYPASS_RDMA_DEVICES",
                  memory.size(), network.size())};
}

Result<PairAddress> decodePairAddress(std::span<const std::byte> bytes) {
  auto decoded = decodeChannelAddress(bytes);
  if (!decoded) return decoded.error();
  const ChannelAddress& joint = decoded.value();
  std::span<const std::byte> rest = joint.portAddress;
  if (rest.size() < kMagic.size() || std::memcmp(rest.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{
        ErrorScope::kSession, ErrorCode::kConfiguration,
        "this rank uses memory within a host and RDMA between hosts (GLOO_BYPASS_NETWORK='rdma'), the peer does "
        "not: set the same GLOO_DEVICE_TRANSPORT, GLOO_BYPASS_LINK and GLOO_BYPASS_NETWORK on all ranks"};
  }
  const Error malformed{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "the peer's address is malformed"};
  if (rest.size() < kFixedBytes) return malformed;
  const auto version = std::to_integer<unsigned>(rest[kVersionAt]);
  if (version != kPlainVersion && version != kKeyedVersion) {
    return Error{
        ErrorScope::kSession, ErrorCode::kConfiguration,
        fmt::format("this rank's address format is version {}, the peer's {}: use the same release on all ranks",
                    kKeyedVersion, version)};
  }
  const auto session = loadLittle<std::uint64_t>(rest.data() + kSessionAt);
  const std::size_t memoryBytes = loadLittle<std::uint16_t>(rest.data() + kLengthAt);
  rest = rest.subspan(kFixedBytes);
  if (memoryBytes > rest.size()) return malformed;
  const auto memory = rest.first(memoryBytes);
  rest = rest.subspan(memoryBytes);
  std::span<const std::byte> offer;
  if (version == kKeyedVersion) {
    if (rest.size() < kLengthBytes) return malformed;
    const std::size_t offered = loadLittle<std::uint16_t>(rest.data());
    rest = rest.subspan(kLengthBytes);
    if (offered == 0 || offered > kMaxOfferBytes || offered > rest.size()) return malformed;
    offer = rest.first(offered);
    rest = rest.subspan(offered);
  }
  return PairAddress{
      .memory = {joint.sessionId, {memory.begin(), memory.end()}, joint.description, joint.offer},
      .network = {session, {rest.begin(), rest.end()}, joint.description, {offer.begin(), offer.end()}},
  };
}

}  // namespace gloo_bypass::pairs
