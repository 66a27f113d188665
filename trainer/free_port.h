// A TCP port for ranks that are about to start and meet at it.
#pragma once

#include <cstdint>

#include "trainer/file_io.h"

namespace gloo_bypass::trainer {

// A port of this machine that nobody uses now, out of the range from which the kernel gives ports to whoever wants any: there a socket
// that asks for none in particular may get it before rank 0 listens, seconds later. Throws TrainerError when there is none.
uint16_t freePort();

// A TCP socket bound to `port` on every address of this machine (0: any port), over IPv6 and IPv4 where there is IPv6; none (-1),
// with errno set, if that cannot be had. `reuse`: a port whose last connections are still being closed will do.
FileDescriptor socketOnPort(uint16_t port, bool reuse);

} // namespace gloo_bypass::trainer
