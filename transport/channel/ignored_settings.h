// For BackEnd::ignoredSettings of back-ends that run without DPDK.
#pragma once

#include <string>
#include <vector>

#include "transport/base/config.h"

namespace gloo_bypass {

// One line for each setting that needs DPDK. `name`: the back-end; `maker`: who makes its frames ("the kernel"), if the
// back-end does not see them.
std::vector<std::string> ignoredWithoutDpdk(const TransportConfig& config, const char* name, const char* maker);

}  // namespace gloo_bypass
