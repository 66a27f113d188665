#include "transport/process/gloo_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <memory>

#include <fmt/format.h>

#include "transport/base/printable.h"

namespace gloo_bypass {
namespace {

Error wrong(std::string message) { return {ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

constexpr const char* kWhatToDo = "set GLOO_SOCKET_IFNAME or GLOO_BYPASS_INTERFACE to the interface to use";

// GLOO_SOCKET_IFNAME's interface if there is one, else the configuration's.
Result<TransportConfig> withInterface(TransportConfig config, const std::string& gloos) {
  if (gloos.empty()) return config;
  if (!config.interface.empty() && config.interface != gloos) {
    return wrong(
        fmt::format("GLOO_BYPASS_INTERFACE='{}' contradicts GLOO_SOCKET_IFNAME='{}': set one of them, or both alike",
                    config.interface, printable(gloos)));
  }
  config.interface = gloos;
  return config;
}

}  // namespace

std::string ownHostName() {
  char name[HOST_NAME_MAX + 1] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

Result<std::string> interfaceOfHost(const std::string& hostName) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(hostName.c_str(), nullptr, &hints, &found); error != 0) {
    return wrong(fmt::format("host name '{}' has no IPv4 address ({}): {}", hostName, gai_strerror(error), kWhatToDo));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return wrong(fmt::format("this machine's interfaces cannot be listed: {}", kWhatToDo));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(list, freeifaddrs);

  char text[INET_ADDRSTRLEN] = "";
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const in_addr wanted = reinterpret_cast<const sockaddr_in*>(address->ai_addr)->sin_addr;
    inet_ntop(AF_INET, &wanted, text, sizeof(text));
    // All of 127/8 belongs to the loopback, even addresses that it does not list (Debian's 127.0.1.1).
    if ((ntohl(wanted.s_addr) >> 24) == 127) {
      return wrong(fmt::format("host name '{}' is {}, on the loopback interface: {}", hostName, text, kWhatToDo));
    }
    for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
      if (reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr == wanted.s_addr)
        return std::string(entry->ifa_name);
    }
  }
  return wrong(
      fmt::format("host name '{}' is {}, which no interface of this machine has: {}", hostName, text, kWhatToDo));
}

std::string interfacesFor(InterfaceRule rule, const std::string& list, const std::string& gloos) {
  const bool ofTheList = !gloos.empty() && ("," + list + ",").find("," + gloos + ",") != std::string::npos;
  return rule == InterfaceRule::kSeveral && ofTheList ? list : gloos;
}

Result<TransportConfig> withGlooAddress(InterfaceRule rule, TransportConfig config, const std::string& interface,
                                        const std::string& hostName) {
  if (rule == InterfaceRule::kIgnored) return config;
  auto named = withInterface(std::move(config), interface);
  if (!named) return named;
  const std::string& chosen = named.value().interface;
  if (rule != InterfaceRule::kSeveral && chosen.find(',') != std::string::npos) {
    return wrong(
        fmt::format("the interfaces '{}' are several, and only UDP, alone or as the network of link mode auto, "
                    "stripes over several: name one, or use GLOO_DEVICE_TRANSPORT=UDP (RDMA: GLOO_BYPASS_RDMA_DEVICES)",
                    printable(chosen)));
  }
  if (!chosen.empty()) return named;
  if (rule == InterfaceRule::kNamed || rule == InterfaceRule::kSeveral ||
      (rule == InterfaceRule::kOptional && hostName.empty()))
    return named;
  auto found = interfaceOfHost(hostName);
  if (rule == InterfaceRule::kOptional) {
    if (found) named.value().hostInterface = std::move(found).value();
    return named;
  }
  if (!found) return found.error();
  named.value().interface = std::move(found).value();
  return named;
}

}  // namespace gloo_bypass
