// A TCP port for ranks that are about to start and meet at it.
#pragma once

#include <cstdint>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass {

// A port of this machine that nobody uses now, out of the range from which the kernel gives ports to whoever wants any:
// there a socket that asks for none in particular may get it before rank 0 listens, seconds later. Throws ProgramError
// when there is none.
std::uint16_t freePort();

// A TCP socket bound to `port` on every address of this machine (0: any port), over IPv6 and IPv4 where there is IPv6;
// none (-1), with errno set, if that cannot be had. `reuse`: a port whose last connections are still being closed will
// do.
FileDescriptor socketOnPort(std::uint16_t port, bool reuse);

}  // namespace gloo_bypass
