// Gloo's buffer of the newer API: sends to and receives from any pair of its context, by 64-bit slot. Its remote key
// lets other ranks put into it and get from it while this rank does nothing.
//
// Put and get:
// - waitSend waits for both. After a put the bytes are then in the other rank's buffer, after a get in this one.
// - Those of this rank on the same bytes of one buffer take effect in the order of the calls; others in any.
// - The slot means nothing: they match no send and no receive.
// - If the other rank refuses (its buffer is gone, the key is of another context), this buffer's waits fail; the pair
//   goes on.
// - A key of this rank's own buffer copies at once.
// - Once a buffer that has given out a key is destroyed, nobody touches its memory. What is under way may end before.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "transport/compatibility/gloo/remote_key.h"
#include "transport/gloo/context.h"
#include "transport/gloo/operation.h"

namespace gloo_bypass::adapter {

class UnboundBuffer final : public gloo_version::RemoteKeyBuffer {
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

  // A use of every pair: any rank that is given the key may come.
  std::unique_ptr<gloo_version::RemoteKey> getRemoteKey() const override;
  void put(const gloo_version::RemoteKey& key, std::uint64_t slot, std::size_t offset, std::size_t roffset,
           std::size_t nbytes) override;
  void get(const gloo_version::RemoteKey& key, std::uint64_t slot, std::size_t offset, std::size_t roffset,
           std::size_t nbytes) override;

  void send(Connection& connection, std::uint64_t slot, std::size_t offset, std::size_t nbytes);
  void recv(Connection& connection, std::uint64_t slot, std::size_t offset, std::size_t nbytes);

 private:
  bool wait(Direction direction, int* rank, std::chrono::milliseconds timeout);
  std::string giveUp(Direction direction);  // with exclusive access; " rank 3": for whom it waited
  void abortWait(Direction direction);
  Connection& connection(int rank) const;
  std::byte* checkedRange(std::size_t offset, std::size_t nbytes) const;
  std::size_t lengthFrom(std::size_t offset, std::size_t nbytes) const;
  void access(RemoteMessageType type, const gloo_version::RemoteKey& key, std::size_t offset, std::size_t roffset,
              std::size_t nbytes);
  void accessOwn(const RemoteMessage& request, std::byte* local);

  const std::shared_ptr<Context> context_;
  Group& group_;
  BufferState state_;
  mutable std::uint64_t region_ = 0;  // 0: it has given out no key; written with exclusive access
};

}  // namespace gloo_bypass::adapter
