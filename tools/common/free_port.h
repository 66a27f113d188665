// A TCP port for ranks that are about to start and meet at it.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass {

// A port of this machine that nobody uses now. It lies outside the kernel's ephemeral range: any other socket could get
// one of that range before rank 0 listens, seconds later. Throws ProgramError if there is none.
std::uint16_t freePort();

enum class Reach : std::uint8_t { kThisMachine, kNetwork };

// A TCP socket bound to `port` (0: any port); none (-1), with errno set, if that cannot be had. kNetwork: on every
// address of this machine, over IPv6 and IPv4 where there is IPv6; kThisMachine: on the IPv4 loopback. `reuse`: a port
// whose last connections are still being closed will do.
FileDescriptor socketOnPort(std::uint16_t port, bool reuse, Reach reach = Reach::kNetwork);
// The port that a socket is bound to; nothing, with errno set, for another descriptor.
std::optional<std::uint16_t> portOf(const FileDescriptor& socket);

}  // namespace gloo_bypass
