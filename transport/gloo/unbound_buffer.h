// Gloo's buffer of the newer API: sends to and receives from any pair of its context, by 64-bit slot.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "transport/gloo/context.h"
#include "transport/gloo/operation.h"

namespace gloo_bypass::adapter {

class UnboundBuffer final : public ::gloo::transport::UnboundBuffer {
 public:
  UnboundBuffer(std::shared_ptr<Context> context, void* ptr, std::size_t size);
  // Withdraws what is pending: the memory is not touched any more. Keeps the context and its pairs alive until then.
  ~UnboundBuffer() override;

  using ::gloo::transport::UnboundBuffer::waitRecv;
  using ::gloo::transport::UnboundBuffer::waitSend;
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override;
  void abortWaitSend() override;

  void send(int dstRank, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override;
  void recv(int srcRank, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override;
  void recv(std::vector<int> srcRanks, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override;

  void send(Connection& connection, std::uint64_t slot, std::size_t offset, std::size_t nbytes);
  void recv(Connection& connection, std::uint64_t slot, std::size_t offset, std::size_t nbytes);

 private:
  bool wait(Direction direction, int* rank, std::chrono::milliseconds timeout);
  [[noreturn]] void timedOut(Direction direction, std::chrono::milliseconds timeout);
  void abortWait(Direction direction);
  Connection& connection(int rank) const;
  std::byte* checkedRange(std::size_t offset, std::size_t nbytes) const;

  const std::shared_ptr<Context> context_;
  Group& group_;
  BufferState state_;
};

}  // namespace gloo_bypass::adapter
