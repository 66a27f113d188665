#include "transport/dpdk/kernel_interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "transport/base/exhausted.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"
#include "transport/network/network_interface.h"

namespace gloo_bypass::dpdk {
namespace {

// Names of interfaces may hold control characters: the environment and the kernel allow them.
Error refuse(const std::string& message) {
  return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, printable(message)};
}

// "eth0, eth1": the interfaces that exist.
std::string candidates() {
  std::set<std::string> names;
  std::string line;
  if (const auto interfaces = network::listInterfaces()) {
    for (const network::ListedInterface& one : interfaces.value()) {
      const bool hasV4 = !one.addresses.empty() && !one.addresses.front().isV6();
      if (hasV4 && !one.isLoopback()) names.insert(one.name);
    }
  }
  for (const std::string& name : names) line += (line.empty() ? "" : ", ") + name;
  return line.empty() ? "none" : line;
}

struct Route {
  int interface = 0;
  unsigned char type = RTN_UNSPEC;
  Ipv4Address gateway = 0;
};

// Asks the kernel for one route. False: there is none.
bool askRoute(Ipv4Address destination, Route& route) {
  const FileDescriptor fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd) return false;
  struct {
    nlmsghdr header;
    rtmsg message;
    rtattr attribute;
    std::uint32_t address;
  } request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = RTM_GETROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.message.rtm_family = AF_INET;
  request.message.rtm_dst_len = 32;
  request.attribute.rta_type = RTA_DST;
  request.attribute.rta_len = RTA_LENGTH(sizeof(std::uint32_t));
  request.address = htonl(destination);
  timeval limit{1, 0};  // the kernel answers at once
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (::send(fd.get(), &request, sizeof(request), 0) != static_cast<ssize_t>(sizeof(request))) return false;
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t received = ::recv(fd.get(), answer.data(), answer.size(), 0);
  if (received < 0) return false;
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (!NLMSG_OK(header, static_cast<unsigned>(received)) || header->nlmsg_type != RTM_NEWROUTE) return false;
  const auto* message = static_cast<const rtmsg*>(NLMSG_DATA(header));
  route.type = message->rtm_type;
  auto remaining = static_cast<int>(RTM_PAYLOAD(header));
  for (const rtattr* a = RTM_RTA(message); RTA_OK(a, remaining); a = RTA_NEXT(a, remaining)) {
    std::uint32_t value = 0;
    if (RTA_PAYLOAD(a) < sizeof(value)) continue;
    std::memcpy(&value, RTA_DATA(a), sizeof(value));
    if (a->rta_type == RTA_OIF) route.interface = static_cast<int>(value);
    if (a->rta_type == RTA_GATEWAY) route.gateway = ntohl(value);
  }
  return true;
}

}  // namespace

Result<KernelInterface> readKernelInterface(const std::string& name) {
  if (name.empty() || name.size() >= IFNAMSIZ || name.find_first_of(",= ") != std::string::npos) {
    return refuse(
        fmt::format("'{}' is no interface name: set GLOO_BYPASS_INTERFACE to one of: {}", name, candidates()));
  }
  const FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (const std::string reason = fd ? "" : exhausted(errno); !reason.empty()) return refuse(reason);
  ifreq request{};
  std::memcpy(request.ifr_name, name.c_str(), name.size());
  const auto ask = [&](unsigned long what) { return fd && ::ioctl(fd.get(), what, &request) == 0; };
  if (!ask(SIOCGIFFLAGS)) {
    return refuse(
        fmt::format("there is no interface '{}': set GLOO_BYPASS_INTERFACE to one of: {}", name, candidates()));
  }
  const auto flags = static_cast<unsigned short>(request.ifr_flags);
  if ((flags & IFF_UP) == 0) return refuse(fmt::format("interface '{}' is down: ip link set {} up", name, name));
  if ((flags & IFF_LOOPBACK) != 0) {
    return refuse(fmt::format("interface '{}' is the loopback: use link mode memif within one machine, or one of: {}",
                              name, candidates()));
  }
  KernelInterface interface;
  interface.name = name;
  if (ask(SIOCGIFINDEX)) interface.index = request.ifr_ifindex;
  if (ask(SIOCGIFMTU)) interface.mtu = static_cast<std::size_t>(request.ifr_mtu);
  if (!ask(SIOCGIFHWADDR) || request.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
    return refuse(fmt::format("interface '{}' is no Ethernet: use one of: {}", name, candidates()));
  }
  std::memcpy(interface.mac.data(), request.ifr_hwaddr.sa_data, interface.mac.size());
  if (!ask(SIOCGIFADDR)) {
    return refuse(fmt::format("interface '{}' has no IPv4 address", name));
  }
  sockaddr_in address{};
  std::memcpy(&address, &request.ifr_addr, sizeof(address));
  interface.ip = ntohl(address.sin_addr.s_addr);
  return interface;
}

Result<Ipv4Address> nextHop(const KernelInterface& interface, Ipv4Address destination) {
  Route route;
  errno = 0;
  if (!askRoute(destination, route)) {
    if (const std::string reason = exhausted(errno); !reason.empty()) return refuse(reason);
    return refuse(fmt::format("there is no route to {}", toString(destination)));
  }
  if (route.type == RTN_LOCAL) {
    return refuse(fmt::format("{} is on this machine, where interface '{}' carries nothing: use link mode memif",
                              toString(destination), interface.name));
  }
  if (route.interface != interface.index) {
    char name[IFNAMSIZ] = "?";
    (void)::if_indextoname(static_cast<unsigned>(route.interface), name);
    return refuse(fmt::format("the way to {} leads through interface '{}', not '{}': set GLOO_BYPASS_INTERFACE",
                              toString(destination), name, interface.name));
  }
  return route.gateway != 0 ? route.gateway : destination;
}

}  // namespace gloo_bypass::dpdk
