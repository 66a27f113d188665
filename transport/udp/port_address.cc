#include "transport/udp/port_address.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "transport/datagram/packet_port.h"

namespace gloo_bypass::udp {
namespace {

// "GBP", the kind of port (sockets), the format's version; then each endpoint, after a byte with its length.
constexpr std::array kPrefix{std::byte{'G'}, std::byte{'B'}, std::byte{'P'}, std::byte{'S'}, std::byte{3}};

}  // namespace

std::vector<std::byte> encode(std::span<const network::Endpoint> endpoints) {
  std::vector<std::byte> out(kPrefix.begin(), kPrefix.end());
  for (const network::Endpoint& endpoint : endpoints) {
    const auto bytes = network::toBytes(endpoint);
    out.push_back(static_cast<std::byte>(bytes.size()));
    std::ranges::copy(bytes, std::back_inserter(out));
  }
  return out;
}

Result<std::vector<network::Endpoint>> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefix.size() || !std::equal(kPrefix.begin(), kPrefix.end(), bytes.begin())) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 "this rank uses UDP sockets, the peer's address is of another kind of port or release: use the same "
                 "on all ranks"};
  }
  const Error malformed{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "the peer's port address is malformed"};
  std::vector<network::Endpoint> endpoints;
  for (auto rest = bytes.subspan(kPrefix.size()); !rest.empty();) {
    const auto length = std::to_integer<std::size_t>(rest.front());
    rest = rest.subspan(1);
    if (length > rest.size() || endpoints.size() == PacketPort::kMaxRails) return malformed;
    const auto endpoint = network::fromBytes(rest.first(length));
    if (!endpoint) return malformed;
    endpoints.push_back(*endpoint);
    rest = rest.subspan(length);
  }
  if (endpoints.empty()) return malformed;
  return endpoints;
}

}  // namespace gloo_bypass::udp
