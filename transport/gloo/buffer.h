// Gloo's older buffer: bound to one pair and slot, sends any part of itself to any place of its peer.
#pragma once

#include <memory>

#include <gloo/transport/buffer.h>

#include "transport/gloo/group.h"

namespace gloo_bypass::adapter {

class Buffer final : public ::gloo::transport::Buffer {
 public:
  Buffer(std::shared_ptr<Group> group, Connection& connection, int slot, void* ptr, std::size_t size,
         Direction direction);
  // Sends that are under way get a moment to leave, since Gloo's algorithms do not wait for all of theirs; then
  // nothing touches the memory any more. May outlive its pair, context and device.
  ~Buffer() override;

  void send(std::size_t offset, std::size_t length, std::size_t roffset = 0) override;
  void waitRecv() override;
  void waitSend() override;

 private:
  void wait(Direction direction);

  const std::shared_ptr<Group> group_;
  Connection& connection_;
  const Direction direction_;
  BufferState state_;
};

}  // namespace gloo_bypass::adapter
