// The addresses of a port's sockets, in the form that peers get through the rendezvous store.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/base/status.h"
#include "transport/network/endpoint.h"

namespace gloo_bypass::udp {

// One endpoint for each socket, at most PacketPort::kMaxRails. Decoding takes a peer's bytes, which are hostile; the
// address of another kind of port gives kConfiguration.
std::vector<std::byte> encode(std::span<const network::Endpoint> endpoints);
Result<std::vector<network::Endpoint>> decode(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::udp
