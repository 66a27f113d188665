// A TCP port for ranks that are about to start and meet at it.
#pragma once

#include <cstdint>

namespace gloo_bypass::trainer {

// A port of this machine that nobody uses now, out of the range from which the kernel gives ports to whoever wants any: there a socket
// that asks for none in particular may get it before rank 0 listens, seconds later. Throws TrainerError when there is none.
uint16_t freePort();

} // namespace gloo_bypass::trainer
