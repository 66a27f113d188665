// An IPv4 or IPv6 address and port, as the kernel has it and as people write it.
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
  sockaddr_in6 v6{};  // so that all bytes are zero

  bool isV6() const { return any.sa_family == AF_INET6; }
  // IP's and UDP's, of a datagram from or to it.
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
  bool operator<(const Endpoint& other) const { return std::memcmp(this, &other, sizeof(v6)) < 0; }
};

Endpoint endpointOf(const sockaddr& address);
// An address as people write it, port 0; nothing where `text` is none.
std::optional<Endpoint> parseIp(const std::string& text);
// "10.0.0.2"; with the port "10.0.0.2:47777" and "[::1]:47777".
std::string ipText(Endpoint endpoint);
std::string toString(const Endpoint& endpoint);

// As peers are told: 4 or 16 bytes of address, and the port, big endian.
std::vector<std::byte> toBytes(Endpoint endpoint);
// Back out of a peer's bytes, which are hostile; nothing where they are no unicast address and a port.
std::optional<Endpoint> fromBytes(std::span<const std::byte> bytes);

}  // namespace gloo_bypass::network
