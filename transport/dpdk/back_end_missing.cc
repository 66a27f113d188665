// Replaces the folder's other sources in a build without DPDK.
#include "transport/dpdk/back_end.h"

#include "transport/dpdk/settings.h"

namespace gloo_bypass::dpdk {

BackEnd backEnd() {
  return {.name = "DPDK",
          .missing = "libdpdk was missing or disabled when it was built",
          .package = "libdpdk-dev",
          .settings = settings,
          .checkSettings = checkSettings};
}

}  // namespace gloo_bypass::dpdk
