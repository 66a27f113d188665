// By which of its addresses this machine reaches its peers, and what the way from there carries. Sends nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::network {

// The port is 0. In this order: `interface`, the name of one or an address of this machine; the address from which the
// kernel's route leads to `peerHost`; the loopback where both are empty. A named interface gives its IPv4 address, else
// an IPv6 one that is not link-local. Where this host's own name leads to the loopback (gloo#335), the address is that
// of the default route, or of the only interface; localhost and the loopback's addresses mean the loopback. The error is
// one line: no such interface (with those there are), it is down or has no address; no such host, no route; several
// interfaces and nothing that tells which. May ask a name server.
Result<Endpoint> chooseLocalAddress(const std::string& interface, const std::string& peerHost);

// Of each name or address of `interface`, commas between; one where there is no comma. Also refused: an empty name, the same
// address twice, more than `most`.
Result<std::vector<Endpoint>> chooseLocalAddresses(const std::string& interface, const std::string& peerHost,
                                                   std::size_t most);

// The interface that has the address which chooseLocalAddress() gives for `peerHost`; never the loopback.
Result<std::string> chooseInterface(const std::string& peerHost);

// "10.0.0.2 on eth0", or the address alone where no interface has it.
std::string placeOf(const Endpoint& local);

// The interface's MTU, or less where the kernel has learned so. kUnavailable: there is no way from `local` to `peer`.
// kConfiguration: nor can there be, as they are of two families, or one is a loopback's, which leads to no other host.
Result<std::size_t> routeMtu(const Endpoint& local, const Endpoint& peer);

}  // namespace gloo_bypass::network
