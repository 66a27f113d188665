// Chooses the local address for traffic with the peers, and finds what size of datagram the route carries. Sends
// nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::network {

// The port is 0. `interface`, the name of one or an address of this machine, is binding; `peerHost` (MASTER_ADDR) is a
// hint. In this order:
//   1. the named interface's IPv4 address, else an IPv6 one that is not link-local;
//   2. the address from which the kernel's route leads to `peerHost`, unless that is the loopback's: rank 0 may be
//      started with localhost, and a host's own name may lead to 127.0.1.1 (gloo#335);
//   3. the default route's, IPv4 first (IPv6 if the hint is ::1);
//   4. the address of this host's own name, if an interface has it; 5. that of the only interface;
//   6. the loopback's, which serves ranks of one machine: no interface leads out, or several do and none is preferred.
// The error is one line: no such interface (with a list of those that exist), it is down or has no address, or no file
// descriptor is left. May query a name server.
Result<Endpoint> chooseLocalAddress(const std::string& interface, const std::string& peerHost);

// The address of each name or address in the comma-separated `interface`; one if it has no comma. Also refuses an empty
// name, the same address twice, and more than `most`.
Result<std::vector<Endpoint>> chooseLocalAddresses(const std::string& interface, const std::string& peerHost,
                                                   std::size_t most);

// The interface that has the address chooseLocalAddress() returns for `peerHost`; never the loopback.
Result<std::string> chooseInterface(const std::string& peerHost);

// "10.0.0.2 on eth0", or the address alone if no interface has it.
std::string placeOf(const Endpoint& local);

// The interface's MTU, or less if the kernel has learned so or does not say. kUnavailable: no route from `local` to
// `peer`. kConfiguration: there cannot be one, since they are of two families, or one is a loopback address, which
// reaches no other host.
Result<std::size_t> routeMtu(const Endpoint& local, const Endpoint& peer);

}  // namespace gloo_bypass::network
