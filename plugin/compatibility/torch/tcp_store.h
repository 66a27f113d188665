// c10d's TCPStore.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace gloo_bypass::torch_version {

// Newer stores serve through libuv by default, which fails in a PyTorch built without libuv (Debian's). Clients work
// with both servers.
template <typename Options>
void serveWithoutLibuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) {
    options.useLibUV = false;
  }
}

}  // namespace gloo_bypass::torch_version
