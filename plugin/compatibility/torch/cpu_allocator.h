// Observes the allocator of CPU tensors.
//
// allocate() is const up to PyTorch 2.1, and copy_data() is new in 2.2: no function here carries `override`; they
// override whatever the base class has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/core/CPUAllocator.h>

namespace gloo_bypass::torch_version {

using MemoryObserver = void (*)(int64_t bytes);  // negative: freed; called from any thread

// A block's context is its memory, as Allocator::raw_allocate() demands, with which oneDNN takes its buffers. So what a
// block needs at its end is kept here.
class ObservedCpuAllocator final : public at::Allocator {
 public:
  ObservedCpuAllocator(at::Allocator& allocator, MemoryObserver observer)
      : allocator_(allocator), observer_(observer) {}

  at::DataPtr allocate(std::size_t bytes) const { return observed(bytes); }
  at::DataPtr allocate(std::size_t bytes) { return observed(bytes); }
  at::DeleterFnPtr raw_deleter() const { return &free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  struct Block {
    at::DataPtr memory;
    int64_t bytes;
    MemoryObserver observer;
  };
  struct Blocks {
    std::mutex mutex;
    std::unordered_map<void*, Block> byMemory;
  };

  // Never destroyed: tensors may live longer than what is static.
  static Blocks& blocks() {
    static auto* all = new Blocks;
    return *all;
  }

  at::DataPtr observed(std::size_t bytes) const {
    auto memory = allocator_.allocate(bytes);
    void* const data = memory.get();
    if (data != nullptr) {
      observer_(static_cast<int64_t>(bytes));
      const std::lock_guard lock(blocks().mutex);
      blocks().byMemory.emplace(data, Block{std::move(memory), static_cast<int64_t>(bytes), observer_});
    }
    return {data, data, &free, at::kCPU};
  }

  static void free(void* data) {
    const auto block = [&] {
      const std::lock_guard lock(blocks().mutex);
      return blocks().byMemory.extract(data);
    }();
    if (!block.empty()) {
      block.mapped().observer(-block.mapped().bytes);
    }
  }

  at::Allocator& allocator_;
  MemoryObserver observer_;
};

// Starts to observe, for the rest of the process.
inline void observeCpuMemory(MemoryObserver observer) {
  static auto* allocator = new ObservedCpuAllocator(*c10::GetCPUAllocator(), observer);
  c10::SetCPUAllocator(allocator);
}

}  // namespace gloo_bypass::torch_version
