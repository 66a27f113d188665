// What the kernel knows of a network interface and of the way to a peer.
#pragma once

#include <cstdint>
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

// A missing interface, one that is down, has no IPv4 address or is the loopback: an error with the interfaces there
// are.
Result<KernelInterface> readKernelInterface(const std::string& name);

// Next hop towards `destination` by the kernel's routing table: the destination itself or a gateway. kConfiguration
// when the way leads through another interface, or stays on this machine.
Result<Ipv4Address> nextHop(const KernelInterface& interface, Ipv4Address destination);

}  // namespace gloo_bypass::dpdk
