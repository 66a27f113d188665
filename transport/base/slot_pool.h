// Objects named by small integers: addresses stay valid while a slot is taken, freed slots are used again, and nothing
// is allocated once the peak number has been reached. The owner bounds the number of slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gloo_bypass {

using SlotIndex = std::uint32_t;
inline constexpr SlotIndex kNoSlot = 0xffffffffu;

template <typename T>
class SlotPool {
 public:
  // The object is as it was when freed (or T{}): the caller resets what it needs.
  SlotIndex take() {
    if (free_.empty()) addBlock();
    const SlotIndex slot = free_.back();
    free_.pop_back();
    ++taken_;
    return slot;
  }
  void give(SlotIndex slot) {
    free_.push_back(slot);
    --taken_;
  }
  T& operator[](SlotIndex slot) { return blocks_[slot / kBlock][slot % kBlock]; }
  const T& operator[](SlotIndex slot) const { return blocks_[slot / kBlock][slot % kBlock]; }
  std::size_t taken() const { return taken_; }
  // Slots ever made, for loops over all of them.
  SlotIndex size() const { return static_cast<SlotIndex>(blocks_.size() * kBlock); }
  std::size_t memoryBytes() const { return size() * (sizeof(T) + sizeof(SlotIndex)); }
  void clear() {
    blocks_.clear();
    std::vector<SlotIndex>().swap(free_);
    taken_ = 0;
  }

 private:
  static constexpr SlotIndex kBlock = 64;
  void addBlock() {
    const SlotIndex first = size();
    blocks_.push_back(std::make_unique<T[]>(kBlock));
    free_.reserve(blocks_.size() * kBlock);
    for (SlotIndex i = kBlock; i-- > 0;) free_.push_back(first + i);
  }

  std::vector<std::unique_ptr<T[]>> blocks_;
  std::vector<SlotIndex> free_;
  std::size_t taken_ = 0;
};

}  // namespace gloo_bypass
