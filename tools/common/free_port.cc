#include "tools/common/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

constexpr int kFirstUnprivileged = 1024;
constexpr int kLinuxFirstEphemeral = 32768;
constexpr int kTries = 100;  // of ports, nearly all of which are free

FileDescriptor bindTo(int family, std::uint16_t port, bool reuse, Reach reach) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  const int on = 1, off = 0;
  if (reuse) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const in_addr_t host = htonl(reach == Reach::kThisMachine ? INADDR_LOOPBACK : INADDR_ANY);
  const sockaddr_in6 six{.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
  const sockaddr_in four{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = host}};
  const auto* address =
      family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  if (::bind(socket.get(), address, family == AF_INET6 ? sizeof(six) : sizeof(four)) != 0) {
    const int error = errno;
    socket.reset();  // closing may change errno
    errno = error;
  }
  return socket;
}

}  // namespace

FileDescriptor socketOnPort(std::uint16_t port, bool reuse, Reach reach) {
  if (reach == Reach::kNetwork) {
    FileDescriptor socket = bindTo(AF_INET6, port, reuse, reach);
    if (socket || errno == EADDRINUSE) return socket;
  }
  return bindTo(AF_INET, port, reuse, reach);
}

std::optional<std::uint16_t> portOf(const FileDescriptor& socket) {
  sockaddr_in6 address{};  // both families have the port at the same place
  static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));
  socklen_t length = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  return ntohs(address.sin6_port);
}

std::uint16_t freePort() {
  int firstEphemeral = kLinuxFirstEphemeral;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> firstEphemeral;
  const int first = std::max(kFirstUnprivileged, firstEphemeral / 2);
  if (first < firstEphemeral) {
    std::random_device entropy;
    std::uniform_int_distribution<int> ports(first, firstEphemeral - 1);
    for (int i = 0; i < kTries; ++i) {
      const auto port = static_cast<std::uint16_t>(ports(entropy));
      if (socketOnPort(port, /*reuse=*/false)) return port;
    }
  }
  // This machine gives out nearly all of its ports, or uses them.
  if (const auto port = portOf(socketOnPort(0, /*reuse=*/false))) return *port;
  throw ProgramError(fmt::format("cannot find a free TCP port: {}", std::strerror(errno)));
}

}  // namespace gloo_bypass
