// For BackEnd::ignoredSettings of those that run without DPDK.
#pragma once

#include <string>
#include <vector>

#include "transport/base/config.h"

namespace gloo_bypass {

// One line for each setting that asks something of DPDK. `name`: the back-end; `maker`: who makes its frames ("the
// kernel"), where it does not see them.
std::vector<std::string> ignoredWithoutDpdk(const TransportConfig& config, const char* name, const char* maker);

}  // namespace gloo_bypass
