#include "transport/network/network_interface.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace gloo_bypass::network {
namespace {

bool sameIp(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  return a.sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

std::optional<NetworkInterface> NetworkInterface::withAddress(const sockaddr& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !sameIp(*entry->ifa_addr, address)) continue;
    const unsigned index = ::if_nametoindex(entry->ifa_name);
    if (index != 0) return NetworkInterface{static_cast<int>(index), entry->ifa_name};
  }
  return {};
}

bool NetworkInterface::isDeleted(int socket) const {
  ifreq request{};
  request.ifr_ifindex = index;
  return ::ioctl(socket, SIOCGIFNAME, &request) != 0 && errno == ENODEV;
}

std::size_t NetworkInterface::mtu(int socket) const {
  ifreq request{};
  request.ifr_ifindex = index;
  if (::ioctl(socket, SIOCGIFNAME, &request) != 0 || ::ioctl(socket, SIOCGIFMTU, &request) != 0) return 0;
  return static_cast<std::size_t>(request.ifr_mtu);
}

std::string NetworkInterface::trouble(int socket) const {
  if (isDeleted(socket)) return fmt::format("interface '{}' was deleted", name);
  ifreq request{};
  request.ifr_ifindex = index;
  if (::ioctl(socket, SIOCGIFNAME, &request) != 0 || ::ioctl(socket, SIOCGIFFLAGS, &request) != 0) return {};
  const auto flags = static_cast<unsigned short>(request.ifr_flags);
  if ((flags & IFF_UP) == 0) return fmt::format("interface '{}' is down", name);
  if ((flags & IFF_RUNNING) == 0) return fmt::format("interface '{}' has no carrier", name);
  return {};
}

}  // namespace gloo_bypass::network
