#include "transport/network/local_address.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "transport/base/comma_list.h"
#include "transport/base/exhausted.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"
#include "transport/network/network_interface.h"

namespace gloo_bypass::network {
namespace {

constexpr std::uint16_t kDiscardPort = 9;  // any port will do: routes do not depend on it
// For a route without a known MTU: IPv6's minimum, which all but the narrowest IPv4 paths carry too.
constexpr std::size_t kLeastMtu = 1280;

// Names of hosts and interfaces come from the environment and the kernel, and may hold control characters.
Error refuse(const std::string& message) {
  return {ErrorScope::kDevice, ErrorCode::kConfiguration, printable(message)};
}

// " eth0 lo"
std::string inOneLine(const std::set<std::string>& names) {
  std::string line;
  for (const std::string& name : names) line += " " + name;
  return line;
}

Result<Endpoint> addressOfInterface(const std::string& name) {
  const auto interfaces = listInterfaces();
  if (!interfaces) return interfaces.error();
  std::set<std::string> known;
  for (const ListedInterface& one : interfaces.value()) {
    known.insert(one.name);
    if (one.name != name) continue;
    if ((one.flags & IFF_UP) == 0) return refuse(fmt::format("interface '{}' is down: ip link set {} up", name, name));
    if (one.addresses.empty()) {
      return refuse(fmt::format("interface '{}' has no IP address that another host can send to", name));
    }
    return one.addresses.front();
  }
  return refuse(fmt::format(
      "there is no interface '{}': set GLOO_BYPASS_INTERFACE to an address of this machine, or to one of:{}", name,
      inOneLine(known)));
}

// A connected socket; without a route none, and errno says why.
FileDescriptor routedSocket(const Endpoint& local, const Endpoint& peer) {
  FileDescriptor fd(::socket(peer.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Endpoint own = local;
  own.setPort(0);
  if (fd && own.isIp() && ::bind(fd.get(), &own.any, sizeof(own)) != 0) return {};
  if (fd && ::connect(fd.get(), &peer.any, sizeof(peer)) != 0) return {};
  return fd;
}

// The address that the kernel uses towards `peer`; nullopt: no route.
std::optional<Endpoint> routeSource(Endpoint peer) {
  peer.setPort(kDiscardPort);
  const FileDescriptor fd = routedSocket({}, peer);
  Endpoint own;
  socklen_t length = sizeof(own);
  if (!fd || ::getsockname(fd.get(), &own.any, &length) != 0) return {};
  own.setPort(0);
  return own;
}

// In an order that is the same on all hosts, as otherwise their addresses might be of two families: the loopback last,
// IPv4 first. Empty if the name is unknown.
std::vector<Endpoint> addressesOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> entries(found, ::freeaddrinfo);
  std::vector<Endpoint> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (const Endpoint address = endpointOf(*entry->ai_addr); address.isIp()) addresses.push_back(address);
  }
  std::stable_sort(addresses.begin(), addresses.end(), [](const Endpoint& a, const Endpoint& b) {
    return std::pair(a.isLoopback(), a.isV6()) < std::pair(b.isLoopback(), b.isV6());
  });
  return addresses;
}

// This machine's interfaces that lead to other hosts.
Result<std::vector<ListedInterface>> outwardInterfaces() {
  auto interfaces = listInterfaces();
  if (interfaces) std::erase_if(interfaces.value(), [](const ListedInterface& one) { return !one.leadsOut(); });
  return interfaces;
}

// The address of this machine's own name, if one of these interfaces has it.
std::optional<Endpoint> addressOfHostName(const std::vector<ListedInterface>& outward) {
  char name[HOST_NAME_MAX + 1] = "";
  if (::gethostname(name, sizeof(name) - 1) != 0) return {};
  for (const Endpoint& address : addressesOf(name)) {
    if (std::ranges::any_of(outward, [&](const auto& one) { return one.has(address); })) return address;
  }
  return {};
}

// The address that other hosts can send to, when no peer is known. nullopt: there is none, or several and no way to
// choose.
std::optional<Endpoint> addressForOthers(bool v6First) {
  constexpr const char* kElsewhere[] = {"192.0.2.1", "2001:db8::1"};  // of no host: reserved for documents
  for (const bool v6 : {v6First, !v6First}) {
    const auto own = routeSource(*parseIp(kElsewhere[v6 ? 1 : 0]));
    if (own && !own->isLoopback() && !own->isLinkLocal()) return own;
  }
  const auto outward = outwardInterfaces();
  if (!outward) return {};
  if (const auto named = addressOfHostName(outward.value())) return named;
  if (outward.value().size() != 1) return {};
  const std::vector<Endpoint>& addresses = outward.value()[0].addresses;
  return v6First ? addresses.back() : addresses.front();
}

// The loopback's address, if this machine has none that another host could send to, or several and no way to choose.
Result<Endpoint> addressTowards(const std::string& host) {
  Endpoint within = *parseIp("127.0.0.1");
  for (const Endpoint& peer : addressesOf(host)) {
    const auto own = routeSource(peer);
    if (!own) {
      if (const std::string reason = exhausted(errno); !reason.empty()) return refuse(reason);
      continue;
    }
    if (own->isLinkLocal()) {
      char name[IF_NAMESIZE] = "?";
      (void)::if_indextoname(own->v6.sin6_scope_id, name);
      return addressOfInterface(name);
    }
    if (!own->isLoopback()) return *own;
    within = *own;
    break;
  }
  return addressForOthers(within.isV6()).value_or(within);
}

}  // namespace

Result<Endpoint> chooseLocalAddress(const std::string& interface, const std::string& peerHost) {
  if (const auto address = parseIp(interface)) return *address;
  if (!interface.empty()) return addressOfInterface(interface);
  return addressTowards(peerHost);
}

Result<std::vector<Endpoint>> chooseLocalAddresses(const std::string& interface, const std::string& peerHost,
                                                   std::size_t most) {
  const std::vector<std::string> names = splitAtCommas(interface);
  if (names.size() > most) {
    return refuse(fmt::format("the list of interfaces '{}' has {} names, more than {}", interface, names.size(), most));
  }
  std::vector<Endpoint> addresses;
  for (const std::string& name : names) {
    if (name.empty() && names.size() > 1) {
      return refuse(fmt::format("the list of interfaces '{}' has an empty name: write NAME,NAME", interface));
    }
    const auto address = chooseLocalAddress(name, peerHost);
    if (!address) return address.error();
    const std::string text = ipText(address.value());
    if (std::any_of(addresses.begin(), addresses.end(), [&](const Endpoint& known) { return ipText(known) == text; })) {
      return refuse(fmt::format("the list of interfaces '{}' leads to {} twice: name each once", interface, text));
    }
    addresses.push_back(address.value());
  }
  return addresses;
}

Result<std::string> chooseInterface(const std::string& peerHost) {
  const auto own = addressTowards(peerHost);
  if (!own) return own.error();
  if (!own.value().isLoopback()) {
    const std::string name = interfaceWith(own.value());
    if (!name.empty()) return name;
    return refuse(
        fmt::format("the route to MASTER_ADDR='{}' begins at {}, which no interface has: set GLOO_BYPASS_INTERFACE",
                    peerHost, ipText(own.value())));
  }
  const auto outward = outwardInterfaces();
  if (!outward) return outward.error();
  std::set<std::string> names;
  for (const ListedInterface& one : outward.value()) names.insert(one.name);
  if (names.empty()) return refuse("this machine has no interface that leads to other hosts");
  return refuse(
      fmt::format("neither MASTER_ADDR='{}' nor a default route nor the host's name says which interface leads to "
                  "other hosts: set GLOO_SOCKET_IFNAME (or GLOO_BYPASS_INTERFACE) to one of:{}",
                  peerHost, inOneLine(names)));
}

std::string placeOf(const Endpoint& local) {
  const std::string name = interfaceWith(local);
  return name.empty() ? ipText(local) : fmt::format("{} on {}", ipText(local), printable(name));
}

Result<std::size_t> routeMtu(const Endpoint& local, const Endpoint& peer) {
  const auto refuseWay = [&](const char* why) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 fmt::format("this rank is at {}, the peer at {}{}", toString(local), toString(peer), why)};
  };
  if (peer.isV6() != local.isV6()) return refuseWay(": name interfaces whose addresses are of one family");
  if (peer.isLoopback() != local.isLoopback()) {
    return refuseWay(
        ", and a loopback address leads to no other host: set GLOO_SOCKET_IFNAME (or GLOO_BYPASS_INTERFACE) to the "
        "network's interface on all ranks");
  }
  const FileDescriptor fd = routedSocket(local, peer);
  int mtu = 0;
  socklen_t length = sizeof(mtu);
  const bool v6 = local.isV6();
  if (fd && ::getsockopt(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &length) == 0) {
    return static_cast<std::size_t>(mtu);
  }
  // A sandbox refuses a call that only queries. Probing finds larger sizes later.
  if (fd || errno == EPERM || errno == ENOSYS) return kLeastMtu;
  if (const std::string reason = exhausted(errno); !reason.empty()) {
    return Error{ErrorScope::kSession, ErrorCode::kExhausted, reason};
  }
  return Error{ErrorScope::kSession, ErrorCode::kUnavailable,
               fmt::format("there is no way from {} to {} ({})", ipText(local), ipText(peer), std::strerror(errno))};
}

}  // namespace gloo_bypass::network
