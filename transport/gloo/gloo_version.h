// Differences between versions of Gloo's virtual interface, chosen by compiler checks in meson.build; nothing outside
// this file depends on Gloo's version.
//
//   GLOO_BYPASS_PAIR_IS_CONNECTED  Pair::isConnected is pure virtual (from January 2024)
//
// Context::createAndConnectAllPairs (from July 2023) needs nothing here: Gloo's own default makes the pairs, exchanges
// their addresses through the store and connects them, as rendezvous::Context did before.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

namespace gloo_bypass::adapter {

class VersionedPair : public ::gloo::transport::Pair {
 public:
#if GLOO_BYPASS_PAIR_IS_CONNECTED
  bool isConnected() override { return connectedNow(); }
#endif

 protected:
  virtual bool connectedNow() = 0;
};

}  // namespace gloo_bypass::adapter
