// The back-end over the kernel's UDP sockets.
#pragma once

#include "transport/channel/back_end.h"

namespace gloo_bypass::udp {

BackEnd backEnd();

}  // namespace gloo_bypass::udp
