#include "transport/network/endpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace gloo_bypass::network {
namespace {

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

std::vector<std::byte> toBytes(Endpoint endpoint) {
  const auto ip = endpoint.ip();
  const auto port = std::as_bytes(std::span(&endpoint.v4.sin_port, 1));
  std::vector<std::byte> bytes(ip.begin(), ip.end());
  bytes.insert(bytes.end(), port.begin(), port.end());
  return bytes;
}

std::optional<Endpoint> fromBytes(std::span<const std::byte> bytes) {
  Endpoint endpoint;
  endpoint.any.sa_family = bytes.size() > sizeof(in_addr) + sizeof(in_port_t) ? AF_INET6 : AF_INET;
  const auto ip = endpoint.ip();
  if (bytes.size() != ip.size() + sizeof(in_port_t)) return {};
  std::copy_n(bytes.begin(), ip.size(), ip.begin());
  std::memcpy(&endpoint.v4.sin_port, &bytes[ip.size()], sizeof(in_port_t));
  return isUnicast(endpoint) && endpoint.port() != 0 ? std::optional(endpoint) : std::nullopt;
}

}  // namespace gloo_bypass::network
