// ICMP's "destination unreachable" as an attacker forges it who has seen a datagram pass.
#pragma once

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/network/endpoint.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::test {

struct IcmpUnreachable {
  icmphdr icmp;
  iphdr ip;
  udphdr udp;
  std::array<std::byte, wire::kCommonHeaderBytes> payload;
} __attribute__((packed));

// What `from` sent to `to`, a datagram that begins with `quoted`, did not arrive, because of `code`. `mtu`: what
// passes, with ICMP_FRAG_NEEDED.
inline IcmpUnreachable icmpUnreachable(const network::Endpoint& from, const network::Endpoint& to,
                                       std::span<const std::byte> quoted, std::uint8_t code, std::uint16_t mtu = 0) {
  IcmpUnreachable message{};
  std::copy_n(quoted.begin(), std::min(quoted.size(), message.payload.size()), message.payload.begin());
  message.icmp.type = ICMP_DEST_UNREACH;
  message.icmp.code = code;
  message.icmp.un.frag.mtu = htons(mtu);
  message.ip.version = 4;
  message.ip.ihl = 5;
  message.ip.ttl = 64;
  message.ip.protocol = IPPROTO_UDP;
  message.ip.tot_len = htons(sizeof(message) - sizeof(icmphdr));
  message.ip.saddr = from.v4.sin_addr.s_addr;
  message.ip.daddr = to.v4.sin_addr.s_addr;
  message.udp.source = from.v4.sin_port;
  message.udp.dest = to.v4.sin_port;
  message.udp.len = htons(sizeof(udphdr) + sizeof(message.payload));
  std::uint32_t sum = 0;
  std::array<std::uint16_t, sizeof(message) / 2> words;
  std::memcpy(words.data(), &message, sizeof(message));
  for (const std::uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  message.icmp.checksum = static_cast<std::uint16_t>(~sum);
  return message;
}

}  // namespace gloo_bypass::test
