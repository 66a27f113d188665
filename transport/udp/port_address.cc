#include "transport/udp/port_address.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/datagram/packet_port.h"

namespace gloo_bypass::udp {
namespace {

// "GBP", the kind of port (sockets), and what follows: 4 or 16 bytes of address, and the port, big endian; or several of
// these, the length of each before it.
constexpr std::array<std::byte, 4> kPrefix{std::byte{'G'}, std::byte{'B'}, std::byte{'P'}, std::byte{'S'}};
constexpr std::byte kOne{1}, kSeveral{2};

bool isUnicast(const network::Endpoint& e) {
  if (e.isV6()) return !IN6_IS_ADDR_MULTICAST(&e.v6.sin6_addr) && !IN6_IS_ADDR_UNSPECIFIED(&e.v6.sin6_addr);
  const std::uint32_t firstByte = ntohl(e.v4.sin_addr.s_addr) >> 24;
  return firstByte != 0 && firstByte < 224;
}

std::optional<network::Endpoint> decodeOne(std::span<const std::byte> address) {
  network::Endpoint endpoint;
  endpoint.any.sa_family = address.size() > sizeof(in_addr) + sizeof(in_port_t) ? AF_INET6 : AF_INET;
  const auto ip = endpoint.ip();
  if (address.size() != ip.size() + sizeof(in_port_t)) return {};
  std::copy_n(address.begin(), ip.size(), ip.begin());
  std::memcpy(&endpoint.v4.sin_port, &address[ip.size()], sizeof(in_port_t));
  return isUnicast(endpoint) && endpoint.port() != 0 ? std::optional(endpoint) : std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(std::span<const network::Endpoint> endpoints) {
  std::vector<std::byte> out(kPrefix.begin(), kPrefix.end());
  out.push_back(endpoints.size() == 1 ? kOne : kSeveral);
  for (network::Endpoint endpoint : endpoints) {
    const auto ip = endpoint.ip();
    const auto port = std::as_bytes(std::span(&endpoint.v4.sin_port, 1));
    if (endpoints.size() > 1) out.push_back(static_cast<std::byte>(ip.size() + port.size()));
    out.insert(out.end(), ip.begin(), ip.end());
    out.insert(out.end(), port.begin(), port.end());
  }
  return out;
}

Result<std::vector<network::Endpoint>> decode(std::span<const std::byte> bytes) {
  const bool ours = bytes.size() > kPrefix.size() && std::equal(kPrefix.begin(), kPrefix.end(), bytes.begin());
  const std::byte version = ours ? bytes[kPrefix.size()] : std::byte{0};
  if (version != kOne && version != kSeveral) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 "this rank uses UDP sockets, the peer's address is of another kind of port or release: use the same "
                 "on all ranks"};
  }
  const Error malformed{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "the peer's port address is malformed"};
  std::vector<network::Endpoint> endpoints;
  for (auto rest = bytes.subspan(kPrefix.size() + 1); !rest.empty() || endpoints.empty();) {
    std::size_t length = rest.size();
    if (version == kSeveral && !rest.empty()) {
      length = std::to_integer<std::size_t>(rest.front());
      rest = rest.subspan(1);
    }
    if (length > rest.size() || endpoints.size() == PacketPort::kMaxRails) return malformed;
    const auto endpoint = decodeOne(rest.first(length));
    if (!endpoint) return malformed;
    endpoints.push_back(*endpoint);
    rest = rest.subspan(length);
  }
  if ((version == kOne) != (endpoints.size() == 1)) return malformed;
  return endpoints;
}

}  // namespace gloo_bypass::udp
