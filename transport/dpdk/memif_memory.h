// The memory that the two ends of a memif link share: the client makes it, and describes it to the server.
//
//   region 0:   ring client to server | ring server to client | buffers of both
//   a ring: head and tail, 16-bit counters that wrap, and 2^n descriptors of 16 bytes
//     client to server   sender moves head past what it has filled; receiver moves tail past what it has read
//     server to client   receiver moves head past the empty buffers that it offers; sender moves tail past the filled
//     ones
//
// Everything in the memory is the peer's to write at any time: a value is read once, checked, then used. It is a file
// that cannot shrink, and stays mapped here when the peer ends. Thread: one owner at a time.
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

// What both ends have agreed on before.
struct MemifRingShape {
  std::size_t bufferBytes = 0;
  unsigned log2Slots = 0;
  std::size_t slots() const { return std::size_t{1} << log2Slots; }
  bool operator==(const MemifRingShape&) const = default;
};

// When its pages are made: a ring comes round to each of them, and page faults on the way would triple the time of the
// first messages; of many links most carry little, and would hold memory for nothing.
enum class MemifPages : std::uint8_t { kAtOnce, kWhenTouched };

class MemifMemory {
 public:
  // That of a client which has still to describe it.
  explicit MemifMemory(const MemifRingShape& shape, MemifPages pages = MemifPages::kAtOnce)
      : shape_(shape), pages_(pages) {}
  // A client's own: complete, with all buffers of the ring to the client offered. Errors: kExhausted,
  // kUnavailable.
  static Result<std::unique_ptr<MemifMemory>> create(const MemifRingShape& shape, MemifPages pages);
  ~MemifMemory();
  MemifMemory(const MemifMemory&) = delete;
  MemifMemory& operator=(const MemifMemory&) = delete;

  // One of a client's messages, and the descriptor that came with it (-1: none; borrowed). False: memory that could
  // shrink under us, or rings that are not in it or have another shape, or no memory left to map it into (exhausted()).
  bool describe(const MemifMessage& message, int descriptor);
  bool exhausted() const { return exhausted_; }
  // Both rings have been described.
  bool complete() const { return toServer_ != nullptr && toClient_ != nullptr; }

  // Of one that create() made: the messages that describe it, the region first, and the descriptor that goes with that.
  std::array<MemifMessage, 3> description() const;
  int descriptor() const { return file_.get(); }
  // The server has it: the mapping is enough.
  void closeDescriptor() { file_.reset(); }

  const MemifRingShape& shape() const { return shape_; }
  std::byte* ring(bool toServer) const { return toServer ? toServer_ : toClient_; }
  // The part that a descriptor of the peer's names; empty if it is not in the memory.
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
  FileDescriptor file_;          // of our own
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
