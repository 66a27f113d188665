#include "tools/fabric/frame_arena.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/base/check.h"

namespace gloo_bypass::fabric {

FrameArena::FrameArena(std::size_t limitBytes) : limitSlabs_(std::max<std::size_t>(1, limitBytes / kSlabBytes)) {}

bool FrameArena::addSlab(std::size_t sizeClass) {
  if (slabs_.size() == limitSlabs_) return false;
  // Not cleared: a page counts from its first use.
  std::unique_ptr<std::byte[]> slab(new (std::nothrow) std::byte[kSlabBytes]);
  if (!slab) return false;
  const std::size_t size = kSizes[sizeClass];
  for (std::size_t at = 0; at + size <= kSlabBytes; at += size) {
    free_[sizeClass] = new (&slab[at]) FreeBlock{free_[sizeClass]};
  }
  slabs_.push_back(std::move(slab));
  return true;
}

Frame* FrameArena::allocate(std::size_t length) {
  const std::size_t needed = length + Frame::kFrameArenaHeaderBytes;
  std::size_t sizeClass = 0;
  while (sizeClass < kSizes.size() && kSizes[sizeClass] < needed) ++sizeClass;
  if (sizeClass == kSizes.size()) return nullptr;
  // Without a slab for this size a larger block will do, if one is free.
  if (free_[sizeClass] == nullptr && !addSlab(sizeClass)) {
    while (sizeClass < kSizes.size() && free_[sizeClass] == nullptr) ++sizeClass;
    if (sizeClass == kSizes.size()) return nullptr;
  }
  FreeBlock* const block = free_[sizeClass];
  free_[sizeClass] = block->next;
  usedBytes_ += kSizes[sizeClass];
  peakBytes_ = std::max(peakBytes_, usedBytes_);
  return new (block) Frame{static_cast<std::uint32_t>(length), 1, static_cast<std::uint8_t>(sizeClass)};
}

Frame* FrameArena::copy(std::span<const std::byte> bytes) {
  Frame* const frame = allocate(bytes.size());
  if (frame != nullptr && !bytes.empty()) std::memcpy(frame->data(), bytes.data(), bytes.size());
  return frame;
}

void FrameArena::release(Frame* frame) {
  GLOO_BYPASS_CHECK(frame->references > 0);
  if (--frame->references > 0) return;
  const std::size_t sizeClass = frame->sizeClass;
  usedBytes_ -= kSizes[sizeClass];
  free_[sizeClass] = new (frame) FreeBlock{free_[sizeClass]};
}

}  // namespace gloo_bypass::fabric
