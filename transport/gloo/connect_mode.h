// When the pairs of a context connect.
#pragma once

#include <cstdint>

namespace gloo_bypass {

enum class ConnectMode : std::uint8_t {
  kAtOnce,    // all of them, before the context is handed out
  kOnDemand,  // each with its first use, as Gloo's lazy TCP device
};

}  // namespace gloo_bypass
