// What this program was built from.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace gloo_bypass {

// version, commit, compiler, the transports that are built in, and the libraries: {"gloo": "0.5.0", "dpdk": "22.11.11",
// ...}
nlohmann::json buildInfo();

}  // namespace gloo_bypass
