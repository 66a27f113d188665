// Gloo's handle on one connection.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "transport/compatibility/gloo/transport.h"
#include "transport/gloo/address.h"
#include "transport/gloo/connect_mode.h"
#include "transport/gloo/group.h"

namespace gloo_bypass::adapter {

class Pair final : public gloo_version::Pair {
 public:
  // At once: its address is known, connect is next. On demand: it opens and connects with its first use; its address
  // stays empty, and connect is not called.
  Pair(std::shared_ptr<Group> group, int peerRank, std::chrono::milliseconds timeout, ConnectMode mode);
  // Closes in good order: what was sent is delivered.
  ~Pair() override;

  const ::gloo::transport::Address& address() const override { return address_; }
  // Returns when connected; both sides must call it. Bounded by the context's timeout (kNoTimeout: by 100 hours).
  void connect(const std::vector<char>& bytes) override;
  void close() override;
  // Blocking and polling are the same to our waits but for one thing: with `busyPoll` they never sleep.
  void setSync(bool enable, bool busyPoll) override;

  std::unique_ptr<::gloo::transport::Buffer> createSendBuffer(int slot, void* ptr, std::size_t size) override;
  std::unique_ptr<::gloo::transport::Buffer> createRecvBuffer(int slot, void* ptr, std::size_t size) override;

  void send(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t nbytes) override;
  void recv(::gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t nbytes) override;

 protected:
  bool connectedNow() override;

 private:
  void waitUntilConnected();

  const std::shared_ptr<Group> group_;
  Connection* connection_ = nullptr;  // in the group
  Address address_;
};

}  // namespace gloo_bypass::adapter
