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

// The port of a socket on `wanted` (0: any); nothing, with errno set, if it cannot be had.
std::optional<std::uint16_t> portOf(std::uint16_t wanted) {
  const FileDescriptor socket = socketOnPort(wanted, /*reuse=*/false);
  sockaddr_in6 address{};  // both families have the port at the same place
  static_assert(offsetof(sockaddr_in6, sin6_port) == offsetof(sockaddr_in, sin_port));
  socklen_t length = sizeof(address);
  if (socket.get() < 0 || ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return std::nullopt;
  }
  return ntohs(address.sin6_port);
}

}  // namespace

FileDescriptor socketOnPort(std::uint16_t port, bool reuse) {
  FileDescriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  const bool isSix = socket.get() >= 0;
  if (!isSix) {
    socket = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  if (reuse) {
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  const auto* address = isSix ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  const socklen_t length = isSix ? sizeof(six) : sizeof(four);
  if (::bind(socket.get(), address, length) != 0) {
    const int error = errno;
    socket = FileDescriptor();  // closing may change errno
    errno = error;
  }
  return socket;
}

std::uint16_t freePort() {
  int firstEphemeral = kLinuxFirstEphemeral;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> firstEphemeral;
  const int first = std::max(kFirstUnprivileged, firstEphemeral / 2);
  if (first < firstEphemeral) {
    std::random_device entropy;
    std::uniform_int_distribution<int> ports(first, firstEphemeral - 1);
    for (int i = 0; i < kTries; ++i) {
      if (const auto port = portOf(static_cast<std::uint16_t>(ports(entropy)))) {
        return *port;
      }
    }
  }
  // This machine gives out nearly all of its ports, or uses them.
  if (const auto port = portOf(0)) {
    return *port;
  }
  throw ProgramError(fmt::format("cannot find a free TCP port: {}", std::strerror(errno)));
}

}  // namespace gloo_bypass
