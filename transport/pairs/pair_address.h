// What a channel of two transports puts into the rendezvous store as its port address (inside
// channel/channel_address.h, whose session is the memory's). Little-endian:
//   "GBPR" | u8 version | u64 session of the network | u16 length, port address of memory |
//   version 2: u16 length, offer of keys of the network | port address of the network
//
// Version 1 has no offers: its channels have no keys. The memory's offer is the channel address's own.
//
// "GBP" is how the addresses of DPDK's ports begin, so that a peer of another link mode can name this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/status.h"
#include "transport/channel/channel_address.h"

namespace gloo_bypass::pairs {

// Each is a whole channel address; both have the same description.
struct PairAddress {
  ChannelAddress memory, network;
};

// kExhausted: it is longer than a channel's address may be.
Result<std::vector<std::byte>> encodePairAddress(const PairAddress& address);
// Hostile bytes: every length is checked. An address of another kind: kConfiguration that says so.
Result<PairAddress> decodePairAddress(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::pairs
