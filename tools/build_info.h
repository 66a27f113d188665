// What this program was built from.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace gloo_bypass {

std::string buildVersion();  // "0.1.0 (commit 4b28755)"
// version, commit, compiler, the transports that are built in, and the libraries: {"gloo": "0.5.0", "dpdk": "22.11.11", ...}
nlohmann::json buildInfo();

}  // namespace gloo_bypass
