// The two rings of a memif link, filled and read in place: a payload is copied once into the shared memory, and once
// out of it, to the user's buffer. A ring has one producer and one consumer.
//
// memif_memory.h describes the layout of the rings and whom to trust. Thread: one owner at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/dpdk/memif_memory.h"

namespace gloo_bypass::dpdk {

// Common to both ends of a ring. `memory` outlives it.
class MemifRing {
 protected:
  MemifRing(const MemifMemory& memory, bool toServer)
      : memory_(memory), toServer_(toServer), mask_(static_cast<std::uint16_t>(memory.shape().slots() - 1)) {}
  bool attach();
  std::size_t slots() const { return std::size_t{mask_} + 1; }
  // How far the counter `at` (head or tail) is ahead of next_ (with `behind`: behind it); nullopt: further than the
  // ring's length.
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
  // Prefetches the frame's headers while something else runs.
  void prefetch(std::size_t index) const;
  // Gives the first `count` back to the sender.
  void release(std::size_t count);
  // Whether the sender should write to the ring's event descriptor after each burst. A sender that publishes at the
  // same moment may still use the old answer, so bound every sleep.
  void askForEvents(bool wanted);
};

class MemifSendRing : private MemifRing {
 public:
  MemifSendRing(const MemifMemory& memory, MemifRole role) : MemifRing(memory, role == MemifRole::kClient) {}

  // Both ends are connected. False: the handshake has not described the ring.
  bool start() { return attach(); }
  // How many slots can be filled; nullopt: the counters are impossible.
  std::optional<std::size_t> room() const;
  // The next slot's whole buffer; requires room. Empty: an impossible descriptor.
  std::span<std::byte> slot() const;
  // That slot holds a frame of this size.
  void push(std::size_t bytes);
  // Makes pushed frames visible to the receiver.
  void publish();
};

}  // namespace gloo_bypass::dpdk
