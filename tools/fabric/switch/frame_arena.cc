#include "tools/fabric/switch/frame_arena.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "transport/base/check.h"

namespace gloo_bypass::fabric {

FrameArena::FrameArena(std::size_t limitBytes) : limitSlabs_(std::max<std::size_t>(1, limitBytes / kSlabBytes)) {}

FrameArena::Slab* FrameArena::roomySlab(std::size_t sizeClass) {
  std::vector<std::uint32_t>& list = roomy_[sizeClass];
  while (!list.empty()) {
    Slab& slab = slabs_[list.back()];
    const bool ours = slab.sizeClass == sizeClass;
    if (ours && slab.free != nullptr) return &slab;
    if (ours) slab.listed = false;
    list.pop_back();
  }
  return nullptr;
}

// A new slab, or one that nothing is in.
FrameArena::Slab* FrameArena::cutSlab(std::size_t sizeClass) {
  Slab* slab = nullptr;
  if (slabs_.size() < limitSlabs_) {
    // Not cleared: a page counts from its first use.
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[kSlabBytes]);
    if (memory) {
      slab = &slabs_.emplace_back();
      slab->memory = std::move(memory);
      ++emptySlabs_;
    }
  }
  if (slab == nullptr) {
    if (emptySlabs_ == 0) return nullptr;
    slab = &*std::find_if(slabs_.begin(), slabs_.end(), [](const Slab& each) { return each.used == 0; });
  }
  const std::size_t size = kSizes[sizeClass];
  slab->sizeClass = sizeClass;
  slab->free = nullptr;
  for (std::size_t at = 0; at + size <= kSlabBytes; at += size)
    slab->free = new (&slab->memory[at]) FreeBlock{slab->free};
  slab->listed = true;
  roomy_[sizeClass].push_back(static_cast<std::uint32_t>(slab - slabs_.data()));
  return slab;
}

FrameArena::Slab* FrameArena::slabFor(std::size_t sizeClass) {
  if (Slab* const slab = roomySlab(sizeClass)) return slab;
  if (Slab* const slab = cutSlab(sizeClass)) return slab;
  // A larger block will do.
  for (++sizeClass; sizeClass < kSizes.size(); ++sizeClass) {
    if (Slab* const slab = roomySlab(sizeClass)) return slab;
  }
  return nullptr;
}

Frame* FrameArena::copy(std::span<const std::byte> bytes) {
  const std::size_t needed = bytes.size() + Frame::kFrameArenaHeaderBytes;
  const auto size = std::lower_bound(kSizes.begin(), kSizes.end(), needed);
  if (size == kSizes.end()) return nullptr;
  Slab* const slab = slabFor(static_cast<std::size_t>(size - kSizes.begin()));
  if (slab == nullptr) return nullptr;
  FreeBlock* const block = slab->free;
  slab->free = block->next;
  if (slab->used++ == 0) --emptySlabs_;
  usedBytes_ += kSizes[slab->sizeClass];
  peakBytes_ = std::max(peakBytes_, usedBytes_);
  auto* const frame =
      new (block) Frame{static_cast<std::uint32_t>(bytes.size()), static_cast<std::uint32_t>(slab - slabs_.data()), 1};
  if (!bytes.empty()) std::memcpy(frame->data(), bytes.data(), bytes.size());
  return frame;
}

void FrameArena::release(Frame* frame) {
  GLOO_BYPASS_CHECK(frame->references > 0);
  if (--frame->references > 0) return;
  const std::uint32_t index = frame->slab;
  Slab& slab = slabs_[index];
  usedBytes_ -= kSizes[slab.sizeClass];
  slab.free = new (frame) FreeBlock{slab.free};
  if (--slab.used == 0) ++emptySlabs_;
  if (slab.listed) return;
  slab.listed = true;
  roomy_[slab.sizeClass].push_back(index);
}

}  // namespace gloo_bypass::fabric
