// Rendezvous of ranks: stores are shared here, whether Gloo shares them or borrows them.
//
//   GLOO_BYPASS_GLOO_SHARED_STORE  rendezvous::Context and PrefixStore take shared_ptr<Store>, not Store&
//
// Thread and errors: as Gloo's own.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>

namespace gloo_bypass::gloo_version {

using StorePointer = std::shared_ptr<::gloo::rendezvous::Store>;

inline void connectFullMesh(::gloo::rendezvous::Context& context, const StorePointer& store,
                            std::shared_ptr<::gloo::transport::Device>& device) {
#if GLOO_BYPASS_GLOO_SHARED_STORE
  context.connectFullMesh(store, device);
#else
  context.connectFullMesh(*store, device);
#endif
}

// Keeps `store` alive.
inline StorePointer withPrefix(const std::string& prefix, StorePointer store) {
#if GLOO_BYPASS_GLOO_SHARED_STORE
  return std::make_shared<::gloo::rendezvous::PrefixStore>(prefix, std::move(store));
#else
  struct Kept {
    Kept(const std::string& text, StorePointer pointer) : inner(std::move(pointer)), prefixed(text, *inner) {}
    StorePointer inner;
    ::gloo::rendezvous::PrefixStore prefixed;
  };
  auto kept = std::make_shared<Kept>(prefix, std::move(store));
  return StorePointer(kept, &kept->prefixed);
#endif
}

}  // namespace gloo_bypass::gloo_version
