// The two rings of a memif link, filled and read in place: a payload is copied once into the shared memory, and once
// out of it, to the user's buffer. A ring has one producer and one consumer.
//
// Where the rings are, what they look like, and whom to trust: memif_memory.h. Thread: one owner at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/dpdk/memif_memory.h"

namespace gloo_bypass::dpdk {

// What both ends of a ring have in common. `memory` outlives it.
class MemifRing {
 protected:
  MemifRing(const MemifMemory& memory, bool toServer)
      : memory_(memory), toServer_(toServer), mask_(static_cast<std::uint16_t>(memory.shape().slots() - 1)) {}
  bool attach();
  std::size_t slots() const { return std::size_t{mask_} + 1; }
  // How far the counter `at` (head or tail) is ahead of next_, or, `behind`, behind it; nullopt: further than a ring is
  // long.
  std::optional<std::size_t> distanceTo(std::size_t at, bool behind) const;
  std::byte* descriptor(std::uint16_t position) const;

  const MemifMemory& memory_;
  const bool toServer_;
  const std::uint16_t mask_;  // number of slots - 1
  std::byte* ring_ = nullptr;
  std::uint16_t next_ = 0;  // receiver: first frame not released; sender: first slot not filled
};

class MemifReceiveRing : private MemifRing {
 public:
  MemifReceiveRing(const MemifMemory& memory, MemifRole role) : MemifRing(memory, role == MemifRole::kServer) {}

  // Both ends are connected: begins to receive. False: the handshake has not described the ring.
  bool start();
  // How many frames wait; nullopt: the counters are impossible.
  std::optional<std::size_t> waiting() const;
  // The `index`th waiting frame, in memory that the peer can still write to; empty: an impossible descriptor.
  std::span<const std::byte> frame(std::size_t index) const;
  // Fetches what will be looked at first, while something else is being done.
  void prefetch(std::size_t index) const;
  // Gives the first `count` back to the sender.
  void release(std::size_t count);
  // Whether the sender shall write to the ring's event descriptor after each burst. One that publishes a burst at the
  // same moment may still go by the former answer, so nobody sleeps without a bound.
  void askForEvents(bool wanted);
};

class MemifSendRing : private MemifRing {
 public:
  MemifSendRing(const MemifMemory& memory, MemifRole role) : MemifRing(memory, role == MemifRole::kClient) {}

  // Both ends are connected. False: the handshake has not described the ring.
  bool start() { return attach(); }
  // How many slots can be filled; nullopt: the counters are impossible.
  std::optional<std::size_t> room() const;
  // The next slot's whole buffer, there being room; empty: an impossible descriptor.
  std::span<std::byte> slot() const;
  // That slot holds a frame of so many bytes.
  void push(std::size_t bytes);
  // Shows the receiver what was pushed.
  void publish();
};

}  // namespace gloo_bypass::dpdk
