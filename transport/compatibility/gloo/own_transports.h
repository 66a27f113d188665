// Gloo's own transports, to compare with, and what this generation of them can do.
//
//   GLOO_BYPASS_GLOO_LAZY_TCP         TCP devices that connect a pair at its first use
//   GLOO_BYPASS_GLOO_IBVERBS_UNBOUND  its ibverbs transport has unbound buffers, so that gloo::allreduce runs over it
#pragma once

#include <memory>

#include <gloo/transport/tcp/device.h>

namespace gloo_bypass::gloo_version {

#if GLOO_BYPASS_GLOO_IBVERBS_UNBOUND
inline constexpr bool kIbverbsHasUnboundBuffers = true;
#else
inline constexpr bool kIbverbsHasUnboundBuffers = false;
#endif

// Null if Gloo has none.
inline std::shared_ptr<::gloo::transport::Device> makeLazyTcpDevice(
    [[maybe_unused]] const ::gloo::transport::tcp::attr& attributes) {
#if GLOO_BYPASS_GLOO_LAZY_TCP
  return ::gloo::transport::tcp::CreateLazyDevice(attributes);
#else
  return nullptr;
#endif
}

}  // namespace gloo_bypass::gloo_version
