// c10d's TCPStore.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace gloo_bypass::torch_version {

// Newer stores serve by libuv unless told not to, which a PyTorch built without libuv (Debian's) refuses. Clients of
// both servers are the same.
template <typename Options>
void serveWithoutLibuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) {
    options.useLibUV = false;
  }
}

}  // namespace gloo_bypass::torch_version
