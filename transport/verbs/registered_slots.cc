#include "transport/verbs/registered_slots.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "transport/verbs/memory_limit.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::size_t kCacheLine = 64;

}  // namespace

RegisteredSlots::RegisteredSlots(const VerbsApi& api, ibv_pd* domain, std::size_t slotBytes, RegistrationCache& cache)
    : api_(api), domain_(domain), slotBytes_((slotBytes + kCacheLine - 1) / kCacheLine * kCacheLine), cache_(cache) {}

RegisteredSlots::~RegisteredSlots() {
  for (const Slab& slab : slabs_) {
    (void)api_.deregisterMemory(slab.region);
    (void)munmap(slab.memory, kSlabSlots * slotBytes_);
  }
}

Result<std::uint32_t> RegisteredSlots::take() {
  if (free_.empty()) {
    if (Status status = grow(); !status) return status;
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

Status RegisteredSlots::grow() {
  const std::size_t bytes = kSlabSlots * slotBytes_;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Status(ErrorScope::kDevice, ErrorCode::kExhausted,
                  fmt::format("no memory for {} bytes of message buffers: {}", bytes, std::strerror(errno)));
  }
  ibv_mr* region = api_.registerMemory(domain_, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  while (region == nullptr && errno == ENOMEM && cache_.makeRoom(bytes)) {
    region = api_.registerMemory(domain_, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
  }
  if (region == nullptr) {
    const int error = errno;
    (void)munmap(memory, bytes);
    return Status(ErrorScope::kDevice, ErrorCode::kExhausted,
                  registrationFailure(error, bytes, cache_.pinnedBytes(), "message buffers"));
  }
  const auto first = static_cast<std::uint32_t>(slabs_.size()) * kSlabSlots;
  slabs_.push_back({static_cast<std::byte*>(memory), region});
  cache_.addPinnedBeside(bytes);
  for (std::uint32_t i = kSlabSlots; i-- > 0;) free_.push_back(first + i);
  return {};
}

}  // namespace gloo_bypass::verbs
