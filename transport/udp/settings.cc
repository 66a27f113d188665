#include "transport/udp/settings.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "transport/base/comma_list.h"
#include "transport/base/port_range.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::udp {
namespace {

constexpr std::size_t kMaxInterfaceName = 15;  // IFNAMSIZ without its zero
// The protocol's smallest datagram with IPv4's and UDP's headers: 576.
constexpr std::size_t kMinMtu = wire::kMinDatagramBytes + 28;
constexpr std::size_t kMaxMtu = 65535;

bool areInterfaceNames(std::string_view text) {
  const auto isName = [](const std::string& name) {
    return !name.empty() && name.size() <= kMaxInterfaceName && isPrintable(name) &&
           name.find_first_of("/ :") == std::string::npos;
  };
  const std::vector<std::string> names = splitAtCommas(text);
  return std::all_of(names.begin(), names.end(), isName);
}

}  // namespace

Setting interfaceSetting() {
  return textSetting(
      "GLOO_BYPASS_INTERFACE",
      fmt::format("names of interfaces, commas between, at most {} characters each", kMaxInterfaceName),
      areInterfaceNames,
      "auto, netdev, RDMA, UDP: interface names. UDP and auto accept several (messages are striped) or an IPv4 "
      "address. Empty: GLOO_SOCKET_IFNAME, else the interface of the route to MASTER_ADDR",
      kField<&TransportConfig::interface>);
}

Setting portSetting() {
  return {"GLOO_BYPASS_UDP_PORT",
          "",
          "0 to 65535, or a range like 47777-47800",
          "UDP port of this process; of a range the first that is free, one for each rank of a host; 0: any free "
          "one; pci: always the range's first, 0 is 47777",
          [](std::string_view text, TransportConfig& config) {
            const auto ports = parsePortRange(text);
            if (ports) config.udpPorts = *ports;
            return ports.has_value();
          },
          [](const TransportConfig& config) { return toString(config.udpPorts); }};
}

Setting mtuSetting() {
  return numberSetting("GLOO_BYPASS_MTU", "bytes", 0, kMaxMtu,
                       "IP packet size, at least 576; 0: the interface's, and what the path carries of it; pci: 1500",
                       kField<&TransportConfig::mtu>);
}

std::vector<Setting> settings() {
  return inGroup(SettingGroup::kLinks, {interfaceSetting(), portSetting(), mtuSetting()});
}

Status checkSettings(const TransportConfig& config) {
  if (config.mtu == 0 || config.mtu >= kMinMtu) return {};
  return {ErrorScope::kDevice, ErrorCode::kConfiguration,
          fmt::format("GLOO_BYPASS_MTU='{}' is not allowed: it must be 0, or {} to {} bytes", config.mtu, kMinMtu,
                      kMaxMtu)};
}

}  // namespace gloo_bypass::udp
