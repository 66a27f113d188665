#include "transport/process/gloo_address.h"

#include <netdb.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "transport/base/printable.h"
#include "transport/network/network_interface.h"

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
  const auto interfaces = network::listInterfaces();
  if (!interfaces) return wrong(fmt::format("this machine's interfaces cannot be listed: {}", kWhatToDo));
  std::string text, loopback;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    const network::Endpoint wanted = network::endpointOf(*address->ai_addr);
    text = ipText(wanted);
    // All of 127/8 belongs to the loopback, even addresses that it does not list (Debian's 127.0.1.1).
    if (wanted.isLoopback()) {
      loopback = text;  // the resolver sorts these first: another line of /etc/hosts may have the one to use
      continue;
    }
    for (const network::ListedInterface& one : interfaces.value()) {
      if (one.has(wanted)) return one.name;
    }
  }
  if (!loopback.empty()) {
    return wrong(fmt::format("host name '{}' is {}, on the loopback interface: {}", hostName, loopback, kWhatToDo));
  }
  return wrong(
      fmt::format("host name '{}' is {}, which no interface of this machine has: {}", hostName, text, kWhatToDo));
}

std::string interfacesFor(InterfaceRule rule, const std::string& list, const std::string& gloos) {
  const std::size_t comma = list.find(',');
  const bool ofTheList = !gloos.empty() && ("," + list + ",").find("," + gloos + ",") != std::string::npos;
  if (!ofTheList || comma == std::string::npos || rule == InterfaceRule::kIgnored) return gloos;
  if (rule == InterfaceRule::kSeveral) return list;
  static std::atomic_flag said;
  const std::string first = list.substr(0, comma);
  if (!said.test_and_set()) {
    std::fprintf(stderr, "gloo-bypass: several interfaces are named, and '%s' carries all; '%s' is not used\n",
                 printable(first).c_str(), printable(list.substr(comma + 1)).c_str());
  }
  return first;
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
