#include "transport/udp/endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gloo_bypass::udp {
namespace {

// "GBP", the kind of port (sockets), the format's version; then 4 or 16 bytes of address, and the port, big endian.
constexpr std::array<std::byte, 5> kPrefix{std::byte{'G'}, std::byte{'B'}, std::byte{'P'}, std::byte{'S'},
                                           std::byte{1}};

bool isUnicast(const Endpoint& e) {
  if (e.isV6()) return !IN6_IS_ADDR_MULTICAST(&e.v6.sin6_addr) && !IN6_IS_ADDR_UNSPECIFIED(&e.v6.sin6_addr);
  const std::uint32_t firstByte = ntohl(e.v4.sin_addr.s_addr) >> 24;
  return firstByte != 0 && firstByte < 224;
}

}  // namespace

Endpoint endpointOf(const sockaddr& address) {
  Endpoint endpoint;
  std::memcpy(&endpoint.v6, &address, address.sa_family == AF_INET6 ? sizeof(endpoint.v6) : sizeof(endpoint.v4));
  return endpoint;
}

std::optional<Endpoint> parseIp(const std::string& text) {
  for (const sa_family_t family : {AF_INET, AF_INET6}) {
    Endpoint endpoint;
    endpoint.any.sa_family = family;
    if (::inet_pton(family, text.c_str(), endpoint.ip().data()) == 1) return endpoint;
  }
  return {};
}

std::string ipText(Endpoint endpoint) {
  char text[INET6_ADDRSTRLEN] = "?";
  (void)::inet_ntop(endpoint.any.sa_family, endpoint.ip().data(), text, sizeof(text));
  return text;
}

std::string toString(const Endpoint& endpoint) {
  return fmt::format(fmt::runtime(endpoint.isV6() ? "[{}]:{}" : "{}:{}"), ipText(endpoint), endpoint.port());
}

std::vector<std::byte> encode(Endpoint endpoint) {
  const auto ip = endpoint.ip();
  std::vector<std::byte> out(kPrefix.size() + ip.size() + sizeof(in_port_t));
  const auto end = std::copy(ip.begin(), ip.end(), std::copy(kPrefix.begin(), kPrefix.end(), out.begin()));
  std::memcpy(&*end, &endpoint.v4.sin_port, sizeof(in_port_t));
  return out;
}

Result<Endpoint> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefix.size() || !std::equal(kPrefix.begin(), kPrefix.end(), bytes.begin())) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 "this rank uses UDP sockets, the peer's address is of another kind of port or release: use the same "
                 "on all ranks"};
  }
  const auto address = bytes.subspan(kPrefix.size());
  Endpoint endpoint;
  endpoint.any.sa_family = address.size() > sizeof(in_addr) + sizeof(in_port_t) ? AF_INET6 : AF_INET;
  const auto ip = endpoint.ip();
  if (address.size() == ip.size() + sizeof(in_port_t)) {
    std::copy_n(address.begin(), ip.size(), ip.begin());
    std::memcpy(&endpoint.v4.sin_port, &address[ip.size()], sizeof(in_port_t));
    if (isUnicast(endpoint) && endpoint.port() != 0) return endpoint;
  }
  return Error{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, "the peer's port address is malformed"};
}

}  // namespace gloo_bypass::udp
