// In a build without DPDK, in place of the folder's other sources.
#include "transport/dpdk/back_end.h"

namespace gloo_bypass::dpdk {

BackEnd backEnd() { return missingBackEnd("DPDK", "libdpdk was missing or disabled when it was built", "libdpdk-dev"); }

}  // namespace gloo_bypass::dpdk
