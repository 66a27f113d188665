// The kernel's UDP sockets as a back-end.
#pragma once

#include "transport/channel/back_end.h"

namespace gloo_bypass::udp {

BackEnd backEnd();

}  // namespace gloo_bypass::udp
