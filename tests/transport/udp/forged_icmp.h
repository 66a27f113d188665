// Sends forged ICMP messages. Needs CAP_NET_RAW.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/support/icmp_unreachable.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::udp {

inline FileDescriptor rawSocket() { return FileDescriptor(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)); }

// Tells `from` that what it sent to `to`, a datagram that begins with `quoted`, did not arrive. `mtu` 0: because of
// `code`; else the datagram was larger.
inline void forgeUnreachable(const network::Endpoint& from, const network::Endpoint& to,
                             std::span<const std::byte> quoted, std::uint16_t mtu = 0,
                             std::uint8_t code = ICMP_PORT_UNREACH) {
  const auto message = test::icmpUnreachable(from, to, quoted, mtu == 0 ? code : ICMP_FRAG_NEEDED, mtu);
  ASSERT_EQ(::sendto(rawSocket().get(), &message, sizeof(message), 0, &from.any, sizeof(from)),
            static_cast<ssize_t>(sizeof(message)));
}

}  // namespace gloo_bypass::udp
