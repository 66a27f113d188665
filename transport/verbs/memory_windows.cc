#include "transport/verbs/memory_windows.h"

namespace gloo_bypass::verbs {

MemoryWindows::~MemoryWindows() {
  for (ibv_mw* window : free_) destroy(window);
}

bool MemoryWindows::offered(const ibv_device_attr& limits) {
  return (limits.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
}

ibv_mw* MemoryWindows::take() {
  if (free_.empty()) return ibv_alloc_mw(domain_, IBV_MW_TYPE_2);
  ibv_mw* const window = free_.back();
  free_.pop_back();
  return window;
}

void MemoryWindows::destroy(ibv_mw* window) { (void)ibv_dealloc_mw(window); }

}  // namespace gloo_bypass::verbs
