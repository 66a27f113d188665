// An in-memory port that is its own only peer, for tests: ranks as threads of one process, and the conformance suite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/datagram/packet_port.h"

namespace gloo_bypass::test {

// Faults that an in-memory port injects into datagrams; all in [0, 1].
struct LoopbackImpairment {
  double loss = 0, duplication = 0, reordering = 0, corruption = 0;
  std::uint64_t seed = 1;
};

// Its queue holds `queueDatagrams`; a full one is back-pressure.
std::unique_ptr<PacketPort> makeLoopbackPort(std::size_t maxDatagramBytes, std::size_t queueDatagrams,
                                             const LoopbackImpairment& impairment = {});

}  // namespace gloo_bypass::test
