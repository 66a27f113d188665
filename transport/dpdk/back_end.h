// The DPDK back-end: its ports, the protocol core's sessions over them, its telemetry.
#pragma once

#include "transport/channel/back_end.h"

namespace gloo_bypass::dpdk {

BackEnd backEnd();

}  // namespace gloo_bypass::dpdk
