#include "trainer/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include <fmt/format.h>

#include "trainer/error.h"
#include "trainer/file_io.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int kFirstUnprivileged = 1024;
constexpr int kLinuxFirstEphemeral = 32768;
constexpr int kTries = 100; // of ports, nearly all of which are free

// The port that a socket bound to `wanted` has (0: any); nothing, with errno set, if it cannot be had on every address.
std::optional<uint16_t> bindTo(uint16_t wanted) {
  FileDescriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(wanted);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(wanted);
  auto* address = reinterpret_cast<sockaddr*>(&six);
  socklen_t length = sizeof(six);
  if (socket.get() < 0) { // no IPv6 here
    socket = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address = reinterpret_cast<sockaddr*>(&four);
    length = sizeof(four);
  }
  if (::bind(socket.get(), address, length) != 0 || ::getsockname(socket.get(), address, &length) != 0) {
    return std::nullopt;
  }
  return ntohs(address == reinterpret_cast<sockaddr*>(&six) ? six.sin6_port : four.sin_port);
}

} // namespace

uint16_t freePort() {
  int firstEphemeral = kLinuxFirstEphemeral;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> firstEphemeral;
  const int first = std::max(kFirstUnprivileged, firstEphemeral / 2);
  if (first < firstEphemeral) {
    std::random_device entropy;
    std::uniform_int_distribution<int> ports(first, firstEphemeral - 1);
    for (int i = 0; i < kTries; ++i) {
      if (const auto port = bindTo(static_cast<uint16_t>(ports(entropy)))) {
        return *port;
      }
    }
  }
  // This machine gives out nearly all of its ports, or uses them.
  if (const auto port = bindTo(0)) {
    return *port;
  }
  throw runFailed(fmt::format("cannot find a free TCP port: {}", std::strerror(errno)));
}

} // namespace gloo_bypass::trainer
