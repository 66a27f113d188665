// By which of its addresses this machine reaches its peers, and what the way from there carries. Sends nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::network {

// The port is 0. `interface`, the name of one or an address of this machine, is an order; `peerHost` (MASTER_ADDR) is a
// hint. In this order:
//   1. the named interface's IPv4 address, else an IPv6 one that is not link-local;
//   2. the address from which the kernel's route leads to `peerHost`, unless that is the loopback's: rank 0 may be
//      started with localhost, and a host's own name may lead to 127.0.1.1 (gloo#335);
//   3. that of the default route, IPv4 first (IPv6 where the hint is ::1);
//   4. that of this host's own name, if an interface has it; 5. that of the only interface;
//   6. the loopback's, which serves ranks of one machine: nothing leads out, or several interfaces do and nothing says
//      which of them.
// The error is one line: no such interface (with those there are), it is down or has no address; no descriptor is left.
// May ask a name server.
Result<Endpoint> chooseLocalAddress(const std::string& interface, const std::string& peerHost);

// Of each name or address of `interface`, commas between; one where there is no comma. Also refused: an empty name, the
// same address twice, more than `most`.
Result<std::vector<Endpoint>> chooseLocalAddresses(const std::string& interface, const std::string& peerHost,
                                                   std::size_t most);

// The interface that has the address which chooseLocalAddress() gives for `peerHost`; never the loopback.
Result<std::string> chooseInterface(const std::string& peerHost);

// "10.0.0.2 on eth0", or the address alone where no interface has it.
std::string placeOf(const Endpoint& local);

// The interface's MTU, or less where the kernel has learned so, or does not say. kUnavailable: there is no way from
// `local` to `peer`. kConfiguration: nor can there be, as they are of two families, or one is a loopback's, which leads
// to no other host.
Result<std::size_t> routeMtu(const Endpoint& local, const Endpoint& peer);

}  // namespace gloo_bypass::network
