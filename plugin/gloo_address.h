// What PyTorch tells a transport about where to communicate: an interface's name (from GLOO_SOCKET_IFNAME) or a host name.
#pragma once

#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass {

// For DPDK: `config` with its interface filled in from what PyTorch gave, one of the two being empty. Only netdev links look at
// it: memory links have no interface, and a PCI device is named by its address. Errors (one line): the interface contradicts
// GLOO_BYPASS_INTERFACE; the host name has no IPv4 address, or one that is on no interface or on the loopback.
Result<TransportConfig> withGlooAddress(TransportConfig config, const std::string& interface,
                                        const std::string& hostName);

// For RDMA: the same, but a host name that leads to no interface leaves it empty, since the choice of the device may need none: the
// devices may be named, or there is one only. Errors: the interface contradicts GLOO_BYPASS_INTERFACE.
Result<TransportConfig> withGlooAddressForRdma(TransportConfig config, const std::string& interface,
                                               const std::string& hostName);

// This machine's name, or "" if it has none: what Gloo's TCP transport looks up when it is told neither interface nor host name.
std::string ownHostName();

// The name of the interface of this machine that has an IPv4 address of `hostName`.
Result<std::string> interfaceOfHost(const std::string& hostName);

}  // namespace gloo_bypass
