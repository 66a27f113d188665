// Replaces the folder's other sources in a build without DPDK.
#include "transport/dpdk/back_end.h"

namespace gloo_bypass::dpdk {

BackEnd backEnd() { return missingBackEnd("DPDK", "libdpdk was missing or disabled when it was built", "libdpdk-dev"); }

}  // namespace gloo_bypass::dpdk
