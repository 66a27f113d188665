// A singly linked list of a SlotPool's slots, through each element's member `next`. It allocates nothing, and an
// element can move from list to list.
#pragma once

#include "transport/base/slot_pool.h"

namespace gloo_bypass {

struct SlotList {
  SlotIndex head = kNoSlot, tail = kNoSlot;
  bool empty() const { return head == kNoSlot; }

  template <typename T>
  void append(SlotPool<T>& pool, SlotIndex slot) {
    pool[slot].next = kNoSlot;
    if (empty()) {
      head = slot;
    } else {
      pool[tail].next = slot;
    }
    tail = slot;
  }
  template <typename T>
  void prepend(SlotPool<T>& pool, SlotIndex slot) {
    pool[slot].next = head;
    if (empty()) tail = slot;
    head = slot;
  }
  // Only when !empty().
  template <typename T>
  SlotIndex takeFirst(SlotPool<T>& pool) {
    const SlotIndex slot = head;
    head = pool[slot].next;
    if (empty()) tail = kNoSlot;
    return slot;
  }
  // False: not in this list.
  template <typename T>
  bool remove(SlotPool<T>& pool, SlotIndex slot) {
    SlotIndex previous = kNoSlot;
    for (SlotIndex i = head; i != kNoSlot; previous = i, i = pool[i].next) {
      if (i != slot) continue;
      (previous == kNoSlot ? head : pool[previous].next) = pool[i].next;
      if (tail == slot) tail = previous;
      return true;
    }
    return false;
  }
};

}  // namespace gloo_bypass
