// The server's side of memif's handshake (protocol 2.0): what the client's driver says, checked, and what it gets for an answer.
//
//   server            client                                             state
//     |--- hello ------->|                                               kAwaitingInit
//     |<-- init ---------|   which interface, which mode                 kDescribing
//     |--- ack --------->|
//     |<-- add region ---|   + memory; exactly one (no zero-copy)
//     |--- ack --------->|
//     |<-- add ring -----|   + eventfd; two: to the server, to the client
//     |--- ack --------->|
//     |<-- connect ------|                                               kConnected
//     |--- connected --->|
//
// The fabric speaks the protocol itself, and does not use the driver's server: that one unmaps the rings from a thread of its own the
// moment a client ends, also while a frame is being copied out of them, so that one killed rank could end the whole fabric. It
// also sleeps without polling here, since the client's eventfd is ours. Pure but for the memory that it maps.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/dpdk/memif_memory.h"

namespace gloo_bypass::fabric {

using MemifMessage = std::array<std::byte, dpdk::kMemifMessageBytes>;

MemifMessage memifHello();
// With a reason for the client's log.
MemifMessage memifDisconnect(const std::string& reason);

class MemifHandshake {
 public:
  // A client whose buffers hold less than `longestFrame` bytes is refused: longer frames would be chained, which corrupts them.
  explicit MemifHandshake(std::size_t longestFrame) : longestFrame_(longestFrame) {}

  // The answer to one message and the descriptor that came with it. After an error the answer is a disconnect: send it, and
  // close. nullopt: nothing to be said.
  std::optional<MemifMessage> receive(const MemifMessage& message, FileDescriptor descriptor);

  bool connected() const { return state_ == State::kConnected; }
  // Why the client was refused, or that it took its leave; empty: neither.
  const std::string& ended() const { return ended_; }

  // Once connected; only once.
  std::unique_ptr<dpdk::MemifMemory> takeMemory() { return std::move(memory_); }
  // Becomes readable when the client has sent frames, if the ring asks for it.
  FileDescriptor takeEvents() { return std::move(events_); }

 private:
  enum class State : std::uint8_t { kAwaitingInit, kDescribing, kConnected, kEnded };

  std::optional<MemifMessage> refuse(std::string reason);
  std::optional<MemifMessage> init(const MemifMessage& message);
  std::optional<MemifMessage> addRegion(const MemifMessage& message, FileDescriptor descriptor);
  std::optional<MemifMessage> addRing(const MemifMessage& message, FileDescriptor descriptor);
  std::optional<MemifMessage> makeMemory(unsigned log2Slots);

  const std::size_t longestFrame_;
  State state_ = State::kAwaitingInit;
  std::string ended_;
  std::optional<MemifMessage> region_;  // kept until the first ring tells its shape
  FileDescriptor regionMemory_;
  std::unique_ptr<dpdk::MemifMemory> memory_;
  FileDescriptor events_;
};

}  // namespace gloo_bypass::fabric
