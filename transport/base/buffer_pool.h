// Memory for copied payload. It keeps small buffers, in power-of-two classes, for reuse; larger ones come from the
// heap. Only the cache has a bound here: the owner counts what it holds.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace gloo_bypass {

struct PooledBuffer {
  std::unique_ptr<std::byte[]> data;
  std::size_t capacity = 0;
};

class BufferPool {
 public:
  // At least `bytes` (> 0), contents unspecified.
  PooledBuffer take(std::size_t bytes);
  void give(PooledBuffer buffer);
  std::size_t cachedBytes() const { return cachedBytes_; }
  void clear();

 private:
  static constexpr std::size_t kSmallest = 64, kLargest = 64 * 1024, kClasses = 11;
  // Enough for a window of small messages. More would only be kept after a burst that does not come back.
  static constexpr std::size_t kMaxCachedBytes = 1 << 20;

  std::array<std::vector<std::unique_ptr<std::byte[]>>, kClasses> free_;
  std::size_t cachedBytes_ = 0;
};

}  // namespace gloo_bypass
