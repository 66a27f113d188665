#include "transport/network/network_interface.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace gloo_bypass::network {
namespace {

Error cannotList() {
  return {ErrorScope::kDevice, ErrorCode::kConfiguration,
          fmt::format("this machine's interfaces cannot be listed: {}", std::strerror(errno))};
}

}  // namespace

bool ListedInterface::isLoopback() const { return (flags & IFF_LOOPBACK) != 0; }
bool ListedInterface::leadsOut() const { return (flags & IFF_RUNNING) != 0 && !isLoopback() && !addresses.empty(); }
bool ListedInterface::has(const Endpoint& address) const {
  return std::ranges::find(addresses, ipText(address), ipText) != addresses.end();
}

Result<std::vector<ListedInterface>> listInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return cannotList();
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> entries(list, ::freeifaddrs);
  std::vector<ListedInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto known = std::ranges::find(interfaces, entry->ifa_name, &ListedInterface::name);
    if (known == interfaces.end()) known = interfaces.insert(known, {entry->ifa_name, entry->ifa_flags, {}});
    if (entry->ifa_addr == nullptr) continue;
    const Endpoint endpoint = endpointOf(*entry->ifa_addr);
    if (endpoint.isIp() && !endpoint.isLinkLocal()) known->addresses.push_back(endpoint);
  }
  for (ListedInterface& one : interfaces) {
    std::stable_partition(one.addresses.begin(), one.addresses.end(), [](const Endpoint& e) { return !e.isV6(); });
  }
  return interfaces;
}

std::string interfaceWith(const Endpoint& address) {
  const auto interfaces = listInterfaces();
  if (!interfaces) return "";
  for (const ListedInterface& one : interfaces.value()) {
    if (one.has(address) || (one.isLoopback() && address.isLoopback())) return one.name;
  }
  return "";
}

std::optional<NetworkInterface> NetworkInterface::withAddress(const Endpoint& address) {
  std::string name = interfaceWith(address);
  const unsigned index = ::if_nametoindex(name.c_str());
  if (index == 0) return {};
  return NetworkInterface{static_cast<int>(index), std::move(name)};
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
