// The port address of a channel over verbs, as it stands in the rendezvous store (inside a ChannelAddress).
// Little-endian:
//   "RDM1" | 16 bytes control IPv6 (IPv4-mapped) address | u16 control port | u32 eager bytes | u32 credits | u64 eager
//   window | u8 rails | for each: 16 bytes GID | u32 QPN | u32 first PSN | u16 LID | u8 MTU (ibv_mtu) | u8 link layer |
//   u8 read depth
// Rail 0 appears twice: first the queue pair of frames, then, as on every rail, the one of READs.
//
// "RDM2", of a rank that ends each message's right to read with the message: then, for each rail, u32 QPN | u32 first
// PSN of the queue pair that the peer reads over, in all else as the one of READs. Else that is the one of READs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/status.h"

namespace gloo_bypass::verbs {

inline constexpr std::size_t kMaxRails = 8;

using GidBytes = std::array<std::uint8_t, 16>;

struct RailAddress {
  GidBytes gid{};
  std::uint32_t queuePair = 0;  // 24 bits
  std::uint32_t firstPsn = 0;   // 24 bits
  std::uint16_t lid = 0;        // InfiniBand only
  std::uint8_t mtu = 0;         // ibv_mtu: 1 (256 bytes) to 5 (4096 bytes)
  std::uint8_t linkLayer = 0;   // IBV_LINK_LAYER_*
  std::uint8_t readDepth = 0;   // READs that it serves at once
};

struct ServedQueuePair {
  std::uint32_t number = 0;    // 24 bits
  std::uint32_t firstPsn = 0;  // 24 bits
};

struct RdmaAddress {
  GidBytes controlIp{};  // of the control connection (control_plane.h)
  std::uint16_t controlPort = 0;
  std::uint32_t eagerBytes = 0;         // longest frame payload that the peer's receives take
  std::uint32_t credits = 0;            // receives posted for us
  std::uint64_t eagerWindow = 0;        // bytes of unmatched messages that it keeps for us
  RailAddress frames;                   // the queue pair of frames, on rail 0
  std::vector<RailAddress> rails;       // the queue pairs of READs
  std::vector<ServedQueuePair> served;  // for each rail, or none

  // Where the peer's READs on `rail` arrive.
  RailAddress servedAt(std::size_t rail) const {
    RailAddress address = rails[rail];
    if (served.empty()) return address;
    address.queuePair = served[rail].number;
    address.firstPsn = served[rail].firstPsn;
    return address;
  }
};

std::vector<std::byte> encodeRdmaAddress(const RdmaAddress& address);
// The bytes are hostile: it checks every field.
Result<RdmaAddress> decodeRdmaAddress(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::verbs
