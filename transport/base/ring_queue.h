// A FIFO in a power-of-two ring that doubles when full and then allocates no more. The owner bounds its length. Push
// and pop invalidate indexes of elements.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "transport/base/check.h"

namespace gloo_bypass {

template <typename T>
class RingQueue {
 public:
  bool empty() const { return head_ == tail_; }
  std::size_t size() const { return tail_ - head_; }
  std::size_t memoryBytes() const { return capacity_ * sizeof(T); }

  T& front() { return items_[head_ & (capacity_ - 1)]; }
  const T& front() const { return items_[head_ & (capacity_ - 1)]; }
  // `i` counts from the front.
  T& at(std::size_t i) { return items_[(head_ + i) & (capacity_ - 1)]; }

  void pushBack(T item) {
    if (size() == capacity_) grow();
    items_[tail_++ & (capacity_ - 1)] = std::move(item);
  }
  T popFront() {
    GLOO_BYPASS_CHECK(!empty());
    return std::move(items_[head_++ & (capacity_ - 1)]);
  }
  T& back() { return items_[(tail_ - 1) & (capacity_ - 1)]; }
  void popBack() {
    GLOO_BYPASS_CHECK(!empty());
    --tail_;
  }
  // Keeps the order of the remaining elements.
  template <typename Unwanted>
  void removeIf(Unwanted&& unwanted) {
    for (std::size_t left = size(); left > 0; --left) {
      T item = popFront();
      if (!unwanted(item)) pushBack(std::move(item));
    }
  }
  // Removes all elements and frees the memory.
  void clear() {
    items_.reset();
    capacity_ = head_ = tail_ = 0;
  }

 private:
  void grow() {
    const std::size_t wanted = capacity_ == 0 ? 16 : capacity_ * 2;
    auto items = std::make_unique<T[]>(wanted);
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) items[i] = std::move(at(i));
    items_ = std::move(items);
    capacity_ = wanted;
    head_ = 0;
    tail_ = count;
  }

  std::unique_ptr<T[]> items_;
  std::size_t capacity_ = 0;
  std::size_t head_ = 0, tail_ = 0;  // run freely, taken modulo the capacity
};

}  // namespace gloo_bypass
