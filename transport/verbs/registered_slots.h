// Buffers of equal size in registered memory, for outgoing and incoming frames. It grows by slabs and never shrinks;
// the credits of the channels open at once bound it.
//
// Owner: the device. Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/status.h"
#include "transport/verbs/registration_cache.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

class RegisteredSlots {
 public:
  // `slotBytes` is rounded up to whole cache lines. `cache` gives room where no more memory can be registered. All must
  // outlive the object.
  RegisteredSlots(const VerbsApi& api, ibv_pd* domain, std::size_t slotBytes, RegistrationCache& cache);
  ~RegisteredSlots();
  RegisteredSlots(const RegisteredSlots&) = delete;
  RegisteredSlots& operator=(const RegisteredSlots&) = delete;

  // Errors: kExhausted if no more memory can be registered.
  Result<std::uint32_t> take();
  void give(std::uint32_t slot) { free_.push_back(slot); }

  std::span<std::byte> bytes(std::uint32_t slot) {
    return {slabs_[slot / kSlabSlots].memory + std::size_t{slot % kSlabSlots} * slotBytes_, slotBytes_};
  }
  std::uint32_t localKey(std::uint32_t slot) const { return slabs_[slot / kSlabSlots].region->lkey; }
  std::size_t slotBytes() const { return slotBytes_; }
  std::size_t registeredBytes() const { return slabs_.size() * kSlabSlots * slotBytes_; }

 private:
  static constexpr std::uint32_t kSlabSlots = 64;
  struct Slab {
    std::byte* memory = nullptr;
    ibv_mr* region = nullptr;
  };
  Status grow();

  const VerbsApi& api_;
  ibv_pd* const domain_;
  const std::size_t slotBytes_;
  RegistrationCache& cache_;
  std::vector<Slab> slabs_;
  std::vector<std::uint32_t> free_;
};

}  // namespace gloo_bypass::verbs
