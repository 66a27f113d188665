// What the kernel knows about a network interface and about the route to a peer.
#pragma once

#include <string>

#include "transport/base/status.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::dpdk {

struct KernelInterface {
  std::string name;
  int index = 0;
  MacAddress mac{};
  Ipv4Address ip = 0;
  std::size_t mtu = 0;
};

// The error lists the interfaces that exist: `name` is missing, down, without an IPv4 address, or the loopback.
Result<KernelInterface> readKernelInterface(const std::string& name);

// Next hop towards `destination` by the kernel's routing table: the destination itself or a gateway. kConfiguration if
// the route uses another interface or stays on this machine.
Result<Ipv4Address> nextHop(const KernelInterface& interface, Ipv4Address destination);

}  // namespace gloo_bypass::dpdk
