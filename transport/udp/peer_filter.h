// A program for a UDP socket's filter (classic BPF, socket(7): SO_ATTACH_FILTER): datagrams of the socket's peers pass,
// the kernel drops all others before they wake anybody. Pure.
//
// It looks at the source only. The kernel may have joined several datagrams of one source (UDP_GRO), and a filter sees
// the first: if it looked at the session's id, one datagram under a peer's address could take others along.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <span>
#include <vector>

#include "transport/network/endpoint.h"

namespace gloo_bypass::udp {

// Memory for filters is short (net.core.optmem_max, 20 KiB before Linux 6.5), and for a moment a socket has two.
inline constexpr std::size_t kMostFilteredPeers = 128;

// At most kMostFilteredPeers `peers`, of the family that `v6` says. Address and port are folded into 32 bits; the odd
// stranger that has a peer's 32 bits passes, so look at what arrives all the same.
std::vector<sock_filter> peerFilter(std::span<const network::Endpoint> peers, bool v6);

}  // namespace gloo_bypass::udp
