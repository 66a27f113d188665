// The settings of every port that speaks UDP over IP: this back-end's, and DPDK's netdev and pci.
#pragma once

#include <vector>

#include "transport/base/status.h"
#include "transport/channel/setting.h"

namespace gloo_bypass::udp {

Setting interfaceSetting();
Setting portSetting();
Setting mtuSetting();

std::vector<Setting> settings();

// What must hold between settings; the error names both.
Status checkSettings(const TransportConfig& config);

}  // namespace gloo_bypass::udp
