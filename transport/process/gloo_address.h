// Where PyTorch lets a transport communicate: an interface's name (from GLOO_SOCKET_IFNAME) or a host name.
#pragma once

#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/channel/back_end.h"

namespace gloo_bypass {

// `config` with its interface, or hostInterface, set from Gloo's values by the back-end's rule
// (BackEnd::interfaceRule). Errors (one line): the interface contradicts GLOO_BYPASS_INTERFACE; it names several, and
// the back-end uses one; kRequired, and the host name has no IPv4 address, or one that is on no interface or on the
// loopback.
Result<TransportConfig> withGlooAddress(InterfaceRule rule, TransportConfig config, const std::string& interface,
                                        const std::string& hostName);

// PyTorch makes a device for each interface of GLOO_SOCKET_IFNAME's `list`; `gloos` names one, or is the list itself.
// Returns what the back-end gets instead: the whole list if it uses all, or the first if it uses one (and says so on
// stderr, once a process).
std::string interfacesFor(InterfaceRule rule, const std::string& list, const std::string& gloos);

// This machine's name, or "" if it has none. Gloo's TCP transport looks it up if it gets neither interface nor host
// name.
std::string ownHostName();

// The interface of this machine that has an IPv4 address of `hostName`.
Result<std::string> interfaceOfHost(const std::string& hostName);

}  // namespace gloo_bypass
