// The memory that the two ends of a memif link share, as the drivers' handshake describes it: we relay that handshake, and overhear it.
// Layout and protocol: memif 2.0 (DPDK's guide "Memif Poll Mode Driver"; libmemif's documentation).
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
#include <span>
#include <string_view>

namespace gloo_bypass::dpdk {

enum class MemifRole : std::uint8_t { kClient, kServer };

// What both ends have agreed on before.
struct MemifRingShape {
  std::size_t bufferBytes = 0;
  unsigned log2Slots = 0;
  std::size_t slots() const { return std::size_t{1} << log2Slots; }
};

// One packet of the drivers' handshake (memif_msg_t).
inline constexpr std::size_t kMemifMessageBytes = 128;

// Writes into a client's first packet which interface of the server it wants, and the server's secret; others stay as
// they are.
void nameMemifServer(std::span<std::byte, kMemifMessageBytes> message, std::uint32_t interfaceId,
                     std::string_view secret);

class MemifMemory {
 public:
  explicit MemifMemory(const MemifRingShape& shape) : shape_(shape) {}
  ~MemifMemory();
  MemifMemory(const MemifMemory&) = delete;
  MemifMemory& operator=(const MemifMemory&) = delete;

  // A packet that the client's driver sends to the server's, and its descriptor (-1: none; borrowed). False: what no driver
  // with our shape sends, or memory that could shrink under us; it must not reach a driver.
  bool overhear(std::span<const std::byte, kMemifMessageBytes> message, int fd);
  // Both rings have been described.
  bool complete() const { return toServer_ != nullptr && toClient_ != nullptr; }

  const MemifRingShape& shape() const { return shape_; }
  std::byte* ring(bool toServer) const { return toServer ? toServer_ : toClient_; }
  // The part that a descriptor of the peer's names; empty if it is not in the memory.
  std::span<std::byte> part(std::size_t offset, std::size_t length) const {
    if (length > regionBytes_ || offset > regionBytes_ - length) return {};
    return {region_ + offset, length};
  }

 private:
  bool addRegion(std::span<const std::byte, kMemifMessageBytes> message, int fd);
  bool addRing(std::span<const std::byte, kMemifMessageBytes> message);

  const MemifRingShape shape_;
  std::byte* region_ = nullptr;  // mapped
  std::size_t regionBytes_ = 0;
  std::byte *toServer_ = nullptr, *toClient_ = nullptr;
};

// memif_ring_t: head and tail, each in a cache line of its own; then the descriptors (memif_desc_t).
inline constexpr std::size_t kMemifHeadAt = 6, kMemifTailAt = RTE_CACHE_LINE_SIZE,
                             kMemifDescriptorsAt = 2 * RTE_CACHE_LINE_SIZE;
inline constexpr std::size_t kMemifDescriptorBytes = 16;

}  // namespace gloo_bypass::dpdk
