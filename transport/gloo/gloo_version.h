// Differences between versions of Gloo's virtual interface, chosen by compiler checks in meson.build; nothing outside
// this file depends on Gloo's version.
//
//   GLOO_BYPASS_CONTEXT_CONNECTS   Context::createAndConnectAllPairs is pure virtual (from July 2023): 1 takes IStore&,
//                                  2 takes std::shared_ptr<IStore>
//   GLOO_BYPASS_PAIR_IS_CONNECTED  Pair::isConnected is pure virtual (from January 2024)
#pragma once

#include <string>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#if GLOO_BYPASS_CONTEXT_CONNECTS
#include <gloo/common/store.h>
#endif

namespace gloo_bypass::adapter {

class VersionedPair : public ::gloo::transport::Pair {
 public:
#if GLOO_BYPASS_PAIR_IS_CONNECTED
  bool isConnected() override { return connectedNow(); }
#endif

 protected:
  virtual bool connectedNow() = 0;
};

class VersionedContext : public ::gloo::transport::Context {
 public:
  using ::gloo::transport::Context::Context;

#if GLOO_BYPASS_CONTEXT_CONNECTS == 1
  void createAndConnectAllPairs(::gloo::IStore& store) override { connectAll(store); }
#elif GLOO_BYPASS_CONTEXT_CONNECTS == 2
  void createAndConnectAllPairs(std::shared_ptr<::gloo::IStore> store) override { connectAll(*store); }
#endif

#if GLOO_BYPASS_CONTEXT_CONNECTS
 private:
  // What older versions do in rendezvous::Context: each rank publishes its pairs' addresses, in the order of ranks,
  // its own left out, and picks its own out of every other's.
  void connectAll(::gloo::IStore& store) {
    std::vector<char> mine;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> address = createPair(peer)->address().bytes();
      mine.insert(mine.end(), address.begin(), address.end());
    }
    store.set(std::to_string(rank), mine);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> theirs = store.wait_get(std::to_string(peer), getTimeout());
      const auto length = static_cast<std::ptrdiff_t>(theirs.size()) / (size - 1);
      const auto begin = theirs.begin() + length * (rank < peer ? rank : rank - 1);
      getPair(peer)->connect(std::vector<char>(begin, begin + length));
    }
  }
#endif
};

}  // namespace gloo_bypass::adapter
