// The memory of the frames that wait in the fabric: taken in slabs as it is needed, never more than a limit.
//
// 300 ms of a 10 Gbit/s edge are 375 MB, so the limit is a setting; where it is reached a frame is refused, and the
// caller drops and counts it. A frame is written once and then shared: a broadcast, or a duplicate, refers to it again.
// Thread: one owner. A slab holds blocks of one size; once all of them are free it can be cut anew for another size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gloo_bypass::fabric {

// The bytes follow the header.
struct Frame {
  std::uint32_t length = 0;
  std::uint32_t slab = 0;
  std::uint32_t references = 0;

  std::byte* data() { return reinterpret_cast<std::byte*>(this) + kFrameArenaHeaderBytes; }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(this) + kFrameArenaHeaderBytes; }
  std::span<std::byte> bytes() { return {data(), length}; }
  std::span<const std::byte> bytes() const { return {data(), length}; }

  static constexpr std::size_t kFrameArenaHeaderBytes = 16;
};
static_assert(sizeof(Frame) <= Frame::kFrameArenaHeaderBytes);

class FrameArena {
 public:
  static constexpr std::size_t kSlabBytes = std::size_t{1} << 20;
  static constexpr std::size_t kLongestFrame = 65536 - Frame::kFrameArenaHeaderBytes;

  // At least one slab.
  explicit FrameArena(std::size_t limitBytes);
  FrameArena(const FrameArena&) = delete;
  FrameArena& operator=(const FrameArena&) = delete;

  // A copy of `bytes` with one reference. nullptr: too long, or the limit is reached.
  Frame* copy(std::span<const std::byte> bytes);
  static void retain(Frame* frame) { ++frame->references; }
  // The last reference gives the memory back.
  void release(Frame* frame);

  // Of frames, rounded up to the sizes that memory is cut into.
  std::size_t usedBytes() const { return usedBytes_; }
  std::size_t peakBytes() const { return peakBytes_; }
  std::size_t limitBytes() const { return limitSlabs_ * kSlabBytes; }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  // 1,514 and 9,014 bytes and their header fit closely; no size wastes more than a third.
  static constexpr std::array<std::uint32_t, 12> kSizes{128,  256,  512,   1024,  1536,  2304,
                                                        4608, 9216, 13056, 20864, 34944, 65536};

  struct Slab {
    std::unique_ptr<std::byte[]> memory;
    std::size_t sizeClass = 0;
    std::size_t used = 0;  // blocks
    FreeBlock* free = nullptr;
    bool listed = false;  // in roomy_ of its size
  };

  Slab* roomySlab(std::size_t sizeClass);
  Slab* cutSlab(std::size_t sizeClass);
  Slab* slabFor(std::size_t sizeClass);

  const std::size_t limitSlabs_;
  std::vector<Slab> slabs_;
  // Slabs of each size that may have a free block; an entry whose slab has been cut anew since is passed over.
  std::array<std::vector<std::uint32_t>, kSizes.size()> roomy_;
  std::size_t emptySlabs_ = 0;  // with no block in use
  std::size_t usedBytes_ = 0, peakBytes_ = 0;
};

}  // namespace gloo_bypass::fabric
