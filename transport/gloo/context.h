// Gloo's context over one transport: makes pairs and unbound buffers.
#pragma once

#include <memory>
#include <string>

#include <gloo/transport/device.h>

#include "transport/compatibility/gloo/transport.h"
#include "transport/gloo/connect_mode.h"
#include "transport/gloo/group.h"

namespace gloo_bypass::adapter {

class Context final : public gloo_version::Context, public std::enable_shared_from_this<Context> {
 public:
  Context(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Transport> transport, ConnectMode mode,
          int rank, int size);
  ~Context() override;

  // The pair is connected by hand, on a lazy device too.
  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override;
  // Instead of createPair and connect: makes all pairs; each connects with its first use. False, and nothing done: the
  // device is not a lazy one. Where Gloo's contexts can keep a store, connectFullMesh comes here.
  bool connectOnDemand(std::shared_ptr<gloo_version::ContextStore> store) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr, std::size_t size) override;
  std::unique_ptr<gloo_version::RemoteKey> deserializeRemoteKey(const std::string& serialized) override;

  Group& group() const { return *group_; }

 private:
  std::shared_ptr<::gloo::transport::Device> device_;
  const ConnectMode mode_;
  const std::shared_ptr<Group> group_;
};

}  // namespace gloo_bypass::adapter
