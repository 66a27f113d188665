// Base classes for a transport, with one interface for every generation of Gloo's virtual functions.
//
//   GLOO_BYPASS_GLOO_PAIR_IS_CONNECTED  Pair::isConnected is pure virtual
//   GLOO_BYPASS_GLOO_SHARED_STORE       Context::createAndConnectAllPairs takes a store that the context may keep
//
// Thread and errors: as Gloo's own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include "transport/compatibility/gloo/remote_key.h"

namespace gloo_bypass::gloo_version {

// What a transport may do with a context's store: set, get, wait.
#if GLOO_BYPASS_GLOO_SHARED_STORE
using ContextStore = ::gloo::IStore;
#else
using ContextStore = ::gloo::rendezvous::Store;
#endif

// For stores with counters: a counter's value is known at once, whereas waiting for a key with a short timeout is an
// error that some stores log (c10d's TCPStore).
inline bool canCount([[maybe_unused]] ContextStore& store) {
#if GLOO_BYPASS_GLOO_SHARED_STORE
  return store.has_v2_support();
#else
  return false;
#endif
}

// Adds to the counter, which begins at 0; returns its value. Only if canCount.
inline std::int64_t count([[maybe_unused]] ContextStore& store, [[maybe_unused]] const std::string& counter,
                          [[maybe_unused]] std::int64_t addend) {
#if GLOO_BYPASS_GLOO_SHARED_STORE
  return store.add(counter, addend);
#else
  return 0;
#endif
}

// Connects `context` as connectFullMesh would. False: in this Gloo a context borrows its store; nothing was done.
inline bool connectKeepingStore([[maybe_unused]] ::gloo::transport::Context& context,
                                [[maybe_unused]] const std::shared_ptr<ContextStore>& store) {
#if GLOO_BYPASS_GLOO_SHARED_STORE
  context.createAndConnectAllPairs(store);
  return true;
#else
  return false;
#endif
}

class Pair : public ::gloo::transport::Pair {
 public:
#if GLOO_BYPASS_GLOO_PAIR_IS_CONNECTED
  bool isConnected() override { return connectedNow(); }
#endif

 protected:
  virtual bool connectedNow() = 0;
};

class Context : public RemoteKeyContext {
 public:
  using RemoteKeyContext::RemoteKeyContext;

#if GLOO_BYPASS_GLOO_SHARED_STORE
  void createAndConnectAllPairs(std::shared_ptr<::gloo::IStore> store) override {
    if (!connectOnDemand(store)) ::gloo::transport::Context::createAndConnectAllPairs(std::move(store));
  }
#endif

 protected:
  // Called when the context should connect. True: it keeps the store, and connects each pair at first use. False: Gloo
  // makes all pairs and connects them now. Never called by a Gloo with contexts that cannot keep a store.
  virtual bool connectOnDemand(std::shared_ptr<ContextStore> store) = 0;
};

}  // namespace gloo_bypass::gloo_version
