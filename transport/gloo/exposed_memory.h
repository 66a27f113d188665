// The buffers of one context that have given out remote keys: what peers may read and write. Belongs to its group.
//
//   expose -> region --conceal--> served to nobody new; what is under way may end --forget--> gone
//
// Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "transport/gloo/remote_message.h"

namespace gloo_bypass::adapter {

class ExposedMemory {
 public:
  // Random, once something is exposed.
  std::uint64_t context() const { return context_; }

  std::uint64_t expose(std::byte* data, std::size_t size);
  void conceal(std::uint64_t region);
  void forget(std::uint64_t region);

  struct Place {
    std::byte* data = nullptr;
    RemoteRefusal refusal = RemoteRefusal::kNone;
  };
  // Where `request` may read or write; its fields come from a peer, or from a key that does.
  Place find(const RemoteMessage& request) const;

  // An operation that `find` allowed is under way.
  void begin(std::uint64_t region);
  void end(std::uint64_t region);
  bool inUse(std::uint64_t region) const;

 private:
  struct Region {
    std::byte* data = nullptr;
    std::size_t size = 0;
    std::size_t underWay = 0;
    bool concealed = false;
  };

  std::uint64_t draw() const;

  std::uint64_t context_ = 0;
  std::map<std::uint64_t, Region> regions_;
};

}  // namespace gloo_bypass::adapter
