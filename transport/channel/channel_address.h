// What a channel writes to the rendezvous store. Little-endian:
//   "GBY1" | u64 session id | u16 length, port address | u16 length, description (UTF-8, for messages only)
//   then, of a channel that seals its datagrams: u16 length, offer of keys (transport/security/key_agreement.h)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/base/status.h"

namespace gloo_bypass {

// Keeps the whole address within MessageChannel::kMaxAddressBytes.
inline constexpr std::size_t kMaxPortAddressBytes = 400;
inline constexpr std::size_t kMaxOfferBytes = 66;

struct ChannelAddress {
  std::uint64_t sessionId = 0;
  std::vector<std::byte> portAddress;
  std::string description;
  std::vector<std::byte> offer;  // at most kMaxOfferBytes; empty: none, and none is encoded
};

// Cuts the description where it is too long.
std::vector<std::byte> encodeChannelAddress(const ChannelAddress& address);
// The bytes are hostile: it checks every length and makes the description printable().
Result<ChannelAddress> decodeChannelAddress(std::span<const std::byte> bytes);

}  // namespace gloo_bypass
