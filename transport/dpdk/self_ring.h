// Datagrams that a port sends to itself: ranks that are threads of one process. One owner.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

class SelfRing {
 public:
  SelfRing(std::size_t slots, std::size_t slotBytes) : slotBytes_(slotBytes), slots_(slots) {}
  // False: full.
  bool push(const OutgoingDatagram& datagram);
  // Hands up to `most` datagrams to `sink`, as of `link`, and counts them as frames; returns how many.
  std::size_t receive(PacketSink& sink, LinkId link, std::size_t most, PortCounters& counters);

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    std::size_t length = 0;
  };
  const std::size_t slotBytes_;
  std::vector<Slot> slots_;  // a slot allocates its memory at first use
  std::size_t head_ = 0, tail_ = 0;
};

}  // namespace gloo_bypass::dpdk
