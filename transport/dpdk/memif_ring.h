// The receiving side of a memif link, read in place: what the peer's driver has put into a ring of the shared memory is
// handed up where it lies, so that a payload is copied once, to the user's buffer. (The driver's own receive function
// copies every frame into a packet buffer first, and trusts the lengths and offsets that it finds.)
//
// Where the ring is, the drivers tell each other in their handshake, which we relay and overhear. Layout and protocol:
// memif 2.0 (DPDK's guide "Memif Poll Mode Driver"; libmemif's documentation). The driver's receive function must then
// never be called: there is one consumer of a ring.
//
//   client's memory, region 0:   ring client to server | ring server to client | buffers of both
//   a ring: head and tail, 16-bit counters that wrap, and 2^n descriptors of 16 bytes
//     client to server   sender moves head past what it has filled; receiver moves tail past what it has read
//     server to client   receiver moves head past the empty buffers that it offers; sender moves tail past the filled ones
//
// Everything in the memory is the peer's to write at any time: a value is read once, checked, then used.
// Thread: one owner at a time.
#pragma once

#include <rte_common.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass {

enum class MemifRole : std::uint8_t { kClient, kServer };

// What both ends have agreed on before.
struct MemifRingShape {
  std::size_t bufferBytes = 0;
  unsigned log2Slots = 0;
  std::size_t slots() const { return std::size_t{1} << log2Slots; }
};

// One packet of the drivers' handshake (memif_msg_t).
inline constexpr std::size_t kMemifMessageBytes = 128;

class MemifReceiveRing {
 public:
  MemifReceiveRing(MemifRole role, const MemifRingShape& shape) : role_(role), shape_(shape) {}
  ~MemifReceiveRing();
  MemifReceiveRing(const MemifReceiveRing&) = delete;
  MemifReceiveRing& operator=(const MemifReceiveRing&) = delete;

  // A packet that the client's driver sends to the server's, and its descriptor (-1: none; borrowed). False: what no driver
  // with our shape sends, or memory that could shrink under us; it must not reach a driver.
  bool overhear(std::span<const std::byte, kMemifMessageBytes> message, int fd);
  // Both drivers are connected: begins to receive. False: the handshake has described no ring.
  bool start();

  // How many frames wait; nullopt: the counters are impossible.
  std::optional<std::size_t> waiting() const;
  // The `index`th waiting frame, in memory that the peer can still write to; empty: an impossible descriptor.
  std::span<const std::byte> frame(std::size_t index) const;
  // Fetches what will be looked at first, while something else is being done.
  void prefetch(std::size_t index) const;
  // Gives the first `count` back to the sender.
  void release(std::size_t count);

 private:
  bool addRegion(std::span<const std::byte, kMemifMessageBytes> message, int fd);
  bool addRing(std::span<const std::byte, kMemifMessageBytes> message);
  std::byte* descriptor(std::uint16_t position) const;

  const MemifRole role_;
  const MemifRingShape shape_;
  std::byte* region_ = nullptr;  // mapped
  std::size_t regionBytes_ = 0;
  std::byte* ring_ = nullptr;
  std::uint16_t next_ = 0;  // first frame not released
};

}  // namespace gloo_bypass
