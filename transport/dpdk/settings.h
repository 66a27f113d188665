// The settings of DPDK's links, its environment abstraction layer, its telemetry and captures. Also in builds without
// DPDK, which name the back-end that is missing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/channel/setting.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::dpdk {

std::vector<Setting> settings();

// What must hold between settings; the error names both.
Status checkSettings(const TransportConfig& config);

// GLOO_BYPASS_GATEWAY, "10.0.0.1", and GLOO_BYPASS_IPV4, "10.0.0.2/24"; nothing where `text` is no such address.
std::optional<Ipv4Address> parseIpv4(const std::string& text);
struct Ipv4Prefix {
  Ipv4Address ip = 0, mask = 0;
};
std::optional<Ipv4Prefix> parseIpv4Prefix(const std::string& text);

}  // namespace gloo_bypass::dpdk
