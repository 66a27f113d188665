// Observes the allocator of CPU tensors.
//
// allocate() is const up to PyTorch 2.1, and copy_data() is new in 2.2: the functions here carry no `override`, and
// override whatever the base class has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <c10/core/CPUAllocator.h>

namespace gloo_bypass::torch_version {

using MemoryObserver = void (*)(int64_t bytes);  // negative: freed; called from any thread

class ObservedCpuAllocator final : public at::Allocator {
 public:
  ObservedCpuAllocator(at::Allocator& allocator, MemoryObserver observer)
      : allocator_(allocator), observer_(observer) {}

  at::DataPtr allocate(std::size_t bytes) const { return observed(bytes); }
  at::DataPtr allocate(std::size_t bytes) { return observed(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  struct Block {
    at::DataPtr memory;
    int64_t bytes;
    MemoryObserver observer;
  };

  at::DataPtr observed(std::size_t bytes) const {
    auto block = std::make_unique<Block>(Block{allocator_.allocate(bytes), static_cast<int64_t>(bytes), observer_});
    observer_(block->bytes);
    void* const data = block->memory.get();
    return {data, block.release(), &free, at::kCPU};
  }

  static void free(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    block->observer(-block->bytes);
  }

  at::Allocator& allocator_;
  MemoryObserver observer_;
};

// Starts to observe, for the rest of the process.
inline void observeCpuMemory(MemoryObserver observer) {
  static ObservedCpuAllocator allocator(*c10::GetCPUAllocator(), observer);
  c10::SetCPUAllocator(&allocator);
}

}  // namespace gloo_bypass::torch_version
