// An IPv4 or IPv6 address and port, in the kernel's form and as text.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gloo_bypass::network {

union Endpoint {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6{};  // zeroes all bytes

  bool isV6() const { return any.sa_family == AF_INET6; }
  // Bytes of the IP and UDP headers of its datagrams.
  std::size_t headerBytes() const { return isV6() ? 48 : 28; }
  bool isIp() const { return isV6() || any.sa_family == AF_INET; }
  // At the same place in both families.
  std::uint16_t port() const { return ntohs(v4.sin_port); }
  void setPort(std::uint16_t port) { v4.sin_port = htons(port); }
  std::span<std::byte> ip() {
    return isV6() ? std::as_writable_bytes(std::span(&v6.sin6_addr, 1))
                  : std::as_writable_bytes(std::span(&v4.sin_addr, 1));
  }
  bool isLoopback() const {
    return isV6() ? IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) : ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  bool isLinkLocal() const { return isV6() && IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr); }
  // The kernel leaves no byte of an address unset.
  bool operator<(const Endpoint& other) const { return std::memcmp(&v6, &other.v6, sizeof(v6)) < 0; }
};

Endpoint endpointOf(const sockaddr& address);
// Parses a numeric address; port 0. nullopt: `text` is none.
std::optional<Endpoint> parseIp(const std::string& text);
// "10.0.0.2"; with the port "10.0.0.2:47777" and "[::1]:47777".
std::string ipText(Endpoint endpoint);
std::string toString(const Endpoint& endpoint);

// The form for peers: 4 or 16 bytes of address, and the port, big endian.
std::vector<std::byte> toBytes(Endpoint endpoint);
// Parses a peer's bytes, which are hostile; nullopt: not a unicast address and a port.
std::optional<Endpoint> fromBytes(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::network
