// Gloo's context over one transport: makes pairs and unbound buffers.
#pragma once

#include <memory>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include "transport/gloo/group.h"

namespace gloo_bypass::adapter {

class Context final : public ::gloo::transport::Context, public std::enable_shared_from_this<Context> {
 public:
  Context(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Transport> transport, int rank, int size);
  ~Context() override;

  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr, std::size_t size) override;

  Group& group() const { return *group_; }

 private:
  std::shared_ptr<::gloo::transport::Device> device_;
  const std::shared_ptr<Group> group_;
};

}  // namespace gloo_bypass::adapter
