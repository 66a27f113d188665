#include "transport/udp/local_address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <cerrno>
#include <memory>
#include <set>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass::udp {
namespace {

constexpr std::uint16_t kDiscardPort = 9;  // a route is the same for all ports

Error refuse(std::string message) { return {ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

Result<Endpoint> addressOfInterface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return refuse(fmt::format("this machine's interfaces cannot be listed: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(list, ::freeifaddrs);
  std::set<std::string> names;
  std::optional<Endpoint> best;
  bool down = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    names.insert(entry->ifa_name);
    if (entry->ifa_name != name) continue;
    down = (entry->ifa_flags & IFF_UP) == 0;
    if (entry->ifa_addr == nullptr) continue;
    const Endpoint endpoint = endpointOf(*entry->ifa_addr);
    if (!endpoint.isIp() || (endpoint.isV6() && IN6_IS_ADDR_LINKLOCAL(&endpoint.v6.sin6_addr))) continue;
    if (!best || (best->isV6() && !endpoint.isV6())) best = endpoint;
  }
  if (!names.contains(name)) {
    std::string known;
    for (const std::string& one : names) known += " " + one;
    return refuse(fmt::format(
        "there is no interface '{}': set GLOO_BYPASS_INTERFACE to an address of this machine, or to one of:{}", name,
        known));
  }
  if (down) return refuse(fmt::format("interface '{}' is down: ip link set {} up", name, name));
  if (!best) return refuse(fmt::format("interface '{}' has no IP address", name));
  return *best;
}

// Connected; without a way there is none, and errno says why.
FileDescriptor routedSocket(const Endpoint& local, const Endpoint& peer) {
  FileDescriptor fd(::socket(peer.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Endpoint own = local;
  own.setPort(0);
  if (fd && own.isIp() && ::bind(fd.get(), &own.any, sizeof(own)) != 0) return {};
  if (fd && ::connect(fd.get(), &peer.any, sizeof(peer)) != 0) return {};
  return fd;
}

Result<Endpoint> addressTowards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return refuse(
        fmt::format("MASTER_ADDR='{}' has no address ({}): set GLOO_BYPASS_INTERFACE", host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Endpoint peer = endpointOf(*entry->ai_addr), own;
    peer.setPort(kDiscardPort);
    const FileDescriptor fd = routedSocket({}, peer);
    socklen_t length = sizeof(own);
    if (!fd || ::getsockname(fd.get(), &own.any, &length) != 0) continue;
    own.setPort(0);
    return own;
  }
  return refuse(fmt::format("there is no route to MASTER_ADDR='{}': set GLOO_BYPASS_INTERFACE", host));
}

}  // namespace

Result<Endpoint> chooseLocalAddress(const std::string& interface, const std::string& peerHost) {
  if (const auto address = parseIp(interface)) return *address;
  if (!interface.empty()) return addressOfInterface(interface);
  return peerHost.empty() ? *parseIp("127.0.0.1") : addressTowards(peerHost);
}

Result<std::size_t> routeMtu(const Endpoint& local, const Endpoint& peer) {
  const FileDescriptor fd = routedSocket(local, peer);
  int mtu = 0;
  socklen_t length = sizeof(mtu);
  const bool v6 = local.isV6();
  if (fd && ::getsockopt(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &length) == 0) {
    return static_cast<std::size_t>(mtu);
  }
  return Error{ErrorScope::kSession, ErrorCode::kUnavailable,
               fmt::format("there is no way from {} to {} ({}){}", ipText(local), ipText(peer), std::strerror(errno),
                           local.isLoopback() ? ": set GLOO_BYPASS_INTERFACE to an interface that reaches it" : "")};
}

}  // namespace gloo_bypass::udp
