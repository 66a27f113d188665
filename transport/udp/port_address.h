// Where a port's sockets are, as peers are told through the rendezvous store.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/base/status.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::udp {

// Of each socket, at most PacketPort::kMaxRails; and back out of a peer's bytes, which are hostile. An address of
// another kind of port: kConfiguration.
std::vector<std::byte> encode(std::span<const network::Endpoint> endpoints);
Result<std::vector<network::Endpoint>> decode(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::udp
