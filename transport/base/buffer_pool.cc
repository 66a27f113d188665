#include "transport/base/buffer_pool.h"

#include <bit>

namespace gloo_bypass {

PooledBuffer BufferPool::take(std::size_t bytes) {
  if (bytes > kLargest) return {std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes};
  const std::size_t capacity = bytes <= kSmallest ? kSmallest : std::bit_ceil(bytes);
  auto& list = free_[static_cast<std::size_t>(std::countr_zero(capacity / kSmallest))];
  if (list.empty()) return {std::unique_ptr<std::byte[]>(new std::byte[capacity]), capacity};
  PooledBuffer buffer{std::move(list.back()), capacity};
  list.pop_back();
  cachedBytes_ -= capacity;
  return buffer;
}

void BufferPool::give(PooledBuffer buffer) {
  if (!buffer.data || buffer.capacity > kLargest || cachedBytes_ + buffer.capacity > kMaxCachedBytes) return;
  cachedBytes_ += buffer.capacity;
  free_[static_cast<std::size_t>(std::countr_zero(buffer.capacity / kSmallest))].push_back(std::move(buffer.data));
}

void BufferPool::clear() {
  for (auto& list : free_) std::vector<std::unique_ptr<std::byte[]>>().swap(list);
  cachedBytes_ = 0;
}

}  // namespace gloo_bypass
