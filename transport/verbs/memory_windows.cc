#include "transport/verbs/memory_windows.h"

namespace gloo_bypass::verbs {

MemoryWindows::~MemoryWindows() {
  for (ibv_mw* window : free_) (void)ibv_dealloc_mw(window);
}

bool MemoryWindows::offered(const ibv_device_attr& limits) {
  return (limits.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
}

ibv_mw* MemoryWindows::take() {
  ibv_mw* window = nullptr;
  if (free_.empty()) {
    window = ibv_alloc_mw(domain_, IBV_MW_TYPE_2);
    if (window == nullptr) return nullptr;
  } else {
    window = free_.back();
    free_.pop_back();
  }
  ++taken_;
  return window;
}

void MemoryWindows::destroy(ibv_mw* window) {
  --taken_;
  (void)ibv_dealloc_mw(window);
}

}  // namespace gloo_bypass::verbs
