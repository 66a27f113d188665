// Sends forged ICMP messages, over IPv4 and IPv6. Needs CAP_NET_RAW.
#pragma once

#include <gtest/gtest.h>
#include <netinet/icmp6.h>
#include <netinet/ip6.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/support/icmp_unreachable.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::test {

inline FileDescriptor rawSocket() { return FileDescriptor(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)); }

struct Icmp6Unreachable {
  icmp6_hdr icmp;  // the kernel computes its checksum (RFC 3542, 3.1)
  ip6_hdr ip;
  udphdr udp;
  std::array<std::byte, wire::kCommonHeaderBytes> payload;
} __attribute__((packed));

// "Port unreachable", or "packet too big" (RFC 4443, 3.1 and 3.2).
inline void forgeUnreachable6(const network::Endpoint& from, const network::Endpoint& to,
                              std::span<const std::byte> quoted, std::uint16_t mtu) {
  Icmp6Unreachable message{};
  std::copy_n(quoted.begin(), std::min(quoted.size(), message.payload.size()), message.payload.begin());
  message.icmp.icmp6_type = mtu == 0 ? ICMP6_DST_UNREACH : ICMP6_PACKET_TOO_BIG;
  message.icmp.icmp6_code = mtu == 0 ? ICMP6_DST_UNREACH_NOPORT : 0;
  if (mtu != 0) message.icmp.icmp6_mtu = htonl(mtu);
  const std::uint16_t length = htons(sizeof(message.udp) + sizeof(message.payload));
  message.ip.ip6_vfc = 6 << 4;
  message.ip.ip6_plen = length;
  message.ip.ip6_nxt = IPPROTO_UDP;
  message.ip.ip6_hlim = 64;
  message.ip.ip6_src = from.v6.sin6_addr;
  message.ip.ip6_dst = to.v6.sin6_addr;
  message.udp.source = from.v6.sin6_port;
  message.udp.dest = to.v6.sin6_port;
  message.udp.len = length;
  network::Endpoint host = from;  // a raw socket's destination has no port
  host.setPort(0);
  const FileDescriptor socket(::socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));
  ASSERT_EQ(::sendto(socket.get(), &message, sizeof(message), 0, &host.any, sizeof(host.v6)),
            static_cast<ssize_t>(sizeof(message)));
}

// Tells `from` that what it sent to `to`, a datagram that begins with `quoted`, did not arrive. `mtu` 0: because of
// `code` (over IPv6 always the port); else the datagram was larger.
inline void forgeUnreachable(const network::Endpoint& from, const network::Endpoint& to,
                             std::span<const std::byte> quoted, std::uint16_t mtu = 0,
                             std::uint8_t code = ICMP_PORT_UNREACH) {
  if (from.isV6()) return forgeUnreachable6(from, to, quoted, mtu);
  const auto message = icmpUnreachable(from, to, quoted, mtu == 0 ? code : ICMP_FRAG_NEEDED, mtu);
  ASSERT_EQ(::sendto(rawSocket().get(), &message, sizeof(message), 0, &from.any, sizeof(from)),
            static_cast<ssize_t>(sizeof(message)));
}

}  // namespace gloo_bypass::test
