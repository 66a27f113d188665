#include "transport/gloo/context.h"

#include <utility>

#include <gloo/common/logging.h>

#include "transport/gloo/pair.h"
#include "transport/gloo/remote_key.h"
#include "transport/gloo/unbound_buffer.h"

namespace gloo_bypass::adapter {
// Gloo's checking macros are written for its own namespace.
using ::gloo::EnforceNotMet;
using ::gloo::MakeString;

Context::Context(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Transport> transport,
                 ConnectMode mode, int rank, int size)
    : gloo_version::Context(rank, size),
      device_(std::move(device)),
      mode_(mode),
      group_(std::make_shared<Group>(std::move(transport), rank, size)) {}

Context::~Context() { pairs_.clear(); }

std::unique_ptr<::gloo::transport::Pair>& Context::createPair(int peer) {
  GLOO_ENFORCE(peer >= 0 && peer < size, "No rank ", peer, " in a context of size ", size);
  auto& pair = pairs_[static_cast<std::size_t>(peer)];
  pair = std::make_unique<Pair>(group_, peer, getTimeout(), ConnectMode::kAtOnce);
  return pair;
}

bool Context::connectOnDemand(std::shared_ptr<gloo_version::ContextStore> store) {
  if (mode_ != ConnectMode::kOnDemand) return false;
  group_->connectThrough(std::move(store));
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    auto pair = std::make_unique<Pair>(group_, peer, getTimeout(), ConnectMode::kOnDemand);
    pair->setLocalRank(0);  // the others' host names are not known, as over Gloo's lazy TCP
    pairs_[static_cast<std::size_t>(peer)] = std::move(pair);
  }
  return true;
}

std::unique_ptr<::gloo::transport::UnboundBuffer> Context::createUnboundBuffer(void* ptr, std::size_t bytes) {
  return std::make_unique<UnboundBuffer>(shared_from_this(), ptr, bytes);
}

std::unique_ptr<gloo_version::RemoteKey> Context::deserializeRemoteKey(const std::string& serialized) {
  auto key = parseRemoteKey(serialized);
  GLOO_ENFORCE(key != nullptr, "Rank ", rank, ": not a remote key of this transport (", serialized.size(),
               " bytes): hand over what RemoteKey::serialize gave, unchanged");
  return key;
}

}  // namespace gloo_bypass::adapter
