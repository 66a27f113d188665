// The memory that the two ends of a memif link share: the client makes it, and describes it to the server.
//
//   region 0:   ring client to server | ring server to client | buffers of both
//   a ring: head and tail, 16-bit counters that wrap, and 2^n descriptors of 16 bytes
//     client to server   sender moves head past the buffers that it has filled; receiver moves tail past those it has
//     read
//     server to client   receiver moves head past the empty buffers that it offers; sender moves tail past the filled
//                        ones
//
// The peer can write all of this memory at any time: read a value once, check it, then use it. The memory is a file
// that cannot shrink; it stays mapped here when the peer ends. Thread: one owner at a time.
#pragma once

#include <rte_common.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/dpdk/memif_message.h"

namespace gloo_bypass::dpdk {

enum class MemifRole : std::uint8_t { kClient, kServer };

// Both ends agree on it beforehand.
struct MemifRingShape {
  std::size_t bufferBytes = 0;
  unsigned log2Slots = 0;
  std::size_t slots() const { return std::size_t{1} << log2Slots; }
  bool operator==(const MemifRingShape&) const = default;
};

// When to allocate the pages. A busy ring cycles through all of them, and page faults on the way would triple the time
// of the first messages. With many links most carry little, and allocated pages would be wasted.
enum class MemifPages : std::uint8_t { kAtOnce, kWhenTouched };

class MemifMemory {
 public:
  // For a client's memory that it has yet to describe.
  explicit MemifMemory(const MemifRingShape& shape, MemifPages pages = MemifPages::kAtOnce)
      : shape_(shape), pages_(pages) {}
  // A client's own, complete: it offers all buffers of the ring to the client. Errors: kExhausted, kUnavailable.
  static Result<std::unique_ptr<MemifMemory>> create(const MemifRingShape& shape, MemifPages pages);
  ~MemifMemory();
  MemifMemory(const MemifMemory&) = delete;
  MemifMemory& operator=(const MemifMemory&) = delete;

  // Takes one of the client's messages and its descriptor (-1: none; borrowed). False: memory that could shrink, rings
  // that do not lie in it or have another shape, or no memory left to map it (exhausted()).
  bool describe(const MemifMessage& message, int descriptor);
  bool exhausted() const { return exhausted_; }
  // Both rings are described.
  bool complete() const { return toServer_ != nullptr && toClient_ != nullptr; }

  // For memory from create(): the messages that describe it, the region first, and the region's descriptor.
  std::array<MemifMessage, 3> description() const;
  int descriptor() const { return file_.get(); }
  // The server has mapped it: our mapping is enough.
  void closeDescriptor() { file_.reset(); }

  const MemifRingShape& shape() const { return shape_; }
  std::byte* ring(bool toServer) const { return toServer ? toServer_ : toClient_; }
  // The part that a peer's descriptor names; empty if it lies outside the memory.
  std::span<std::byte> part(std::size_t offset, std::size_t length) const {
    if (length > regionBytes_ || offset > regionBytes_ - length) return {};
    return {region_ + offset, length};
  }

 private:
  bool addRegion(const MemifMessage& message, int descriptor);
  bool addRing(const MemifMessage& message);
  void offerBuffers();

  const MemifRingShape shape_;
  const MemifPages pages_;
  FileDescriptor file_;          // if create() made it
  std::byte* region_ = nullptr;  // mapped
  std::size_t regionBytes_ = 0;
  bool exhausted_ = false;
  std::byte *toServer_ = nullptr, *toClient_ = nullptr;
};

// memif_ring_t: head and tail, each in a cache line of its own; then the descriptors (memif_desc_t).
inline constexpr std::size_t kMemifCookieAt = 0, kMemifRingFlagsAt = 4, kMemifHeadAt = 6,
                             kMemifTailAt = RTE_CACHE_LINE_SIZE, kMemifDescriptorsAt = 2 * RTE_CACHE_LINE_SIZE;
inline constexpr std::size_t kMemifDescriptorBytes = 16;
inline constexpr std::size_t kMemifLengthAt = 4, kMemifOffsetAt = 8;  // in a descriptor
inline constexpr std::uint16_t kMemifNoEvents = 1;  // ring flag: the sender need not write to the ring's eventfd

}  // namespace gloo_bypass::dpdk
