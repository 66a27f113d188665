#include "transport/gloo/context.h"

#include <utility>

#include <gloo/common/logging.h>

#include "transport/gloo/pair.h"
#include "transport/gloo/unbound_buffer.h"

namespace gloo_bypass::adapter {

Context::Context(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Transport> transport, int rank,
                 int size)
    : ::gloo::transport::Context(rank, size),
      device_(std::move(device)),
      group_(std::make_shared<Group>(std::move(transport), rank, size)) {}

Context::~Context() { pairs_.clear(); }

std::unique_ptr<::gloo::transport::Pair>& Context::createPair(int peer) {
  GLOO_ENFORCE(peer >= 0 && peer < size, "No rank ", peer, " in a context of size ", size);
  auto& pair = pairs_[static_cast<std::size_t>(peer)];
  pair = std::make_unique<Pair>(group_, peer, getTimeout());
  return pair;
}

std::unique_ptr<::gloo::transport::UnboundBuffer> Context::createUnboundBuffer(void* ptr, std::size_t bytes) {
  return std::make_unique<UnboundBuffer>(shared_from_this(), ptr, bytes);
}

}  // namespace gloo_bypass::adapter
