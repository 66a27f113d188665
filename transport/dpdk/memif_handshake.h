// Both sides of memif's handshake (protocol 2.0): what the other side says, checked, and what it gets for an answer.
//
//   server            client                                             state of both
//     |--- hello ------->|                                               kAwaitingInit; kAwaitingHello
//     |<-- init ---------|   which interface, which mode                 kDescribing
//     |--- ack --------->|
//     |<-- add region ---|   + memory; exactly one (no zero-copy)
//     |--- ack --------->|
//     |<-- add ring -----|   + eventfd; two: to the server, to the client
//     |--- ack --------->|
//     |<-- connect ------|                                               kConnected
//     |--- connected --->|                                               kConnected
//
// The client says all of it at once, after the hello. DPDK's driver waits for each acknowledgement; a server cannot
// tell.
//
// DPDK's own driver is not used: it unmaps the rings from a thread of its own the moment a peer ends, also while a
// frame is being copied out of them, takes 32 devices in a process, and needs the EAL. Pure but for the memory that the
// server maps.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/dpdk/memif_memory.h"
#include "transport/dpdk/memif_message.h"

namespace gloo_bypass::dpdk {

// A handshake is eight messages each way at most; more come from no correct peer.
inline constexpr int kMaxMemifMessages = 32;

// The first message, the server's. `name` is for the client's log.
MemifMessage memifHello(std::string_view name);
// With a reason for the client's log.
MemifMessage memifDisconnect(std::string_view reason);

class MemifServerHandshake {
 public:
  struct Accepted {
    // A client whose buffers hold less is refused: longer frames would be chained, which corrupts them.
    std::size_t longestFrame = 0;
    std::optional<MemifRingShape> shape;  // the only one; empty: any
    MemifPages pages = MemifPages::kAtOnce;
  };

  // `name` is for the client's log.
  MemifServerHandshake(std::string name, const Accepted& accepted) : name_(std::move(name)), accepted_(accepted) {}

  // The answer to one message and the descriptor that came with it. After an error the answer is a disconnect: send it,
  // and close. nullopt: nothing to be said.
  std::optional<MemifMessage> receive(const MemifMessage& message, FileDescriptor descriptor);

  bool connected() const { return state_ == State::kConnected; }
  // Why the client was refused, or that it took its leave; empty: neither.
  const std::string& ended() const { return ended_; }

  // It ended because this process has no memory left.
  bool exhausted() const { return memory_ && memory_->exhausted(); }
  // Once connected; only once.
  std::unique_ptr<MemifMemory> takeMemory() { return std::move(memory_); }
  // Becomes readable when the client has sent frames, if the ring asks for it.
  FileDescriptor takeEvents() { return std::move(events_); }

 private:
  enum class State : std::uint8_t { kAwaitingInit, kDescribing, kConnected, kEnded };

  std::optional<MemifMessage> refuse(std::string reason);
  std::optional<MemifMessage> init(const MemifMessage& message);
  std::optional<MemifMessage> addRegion(const MemifMessage& message, FileDescriptor descriptor);
  std::optional<MemifMessage> addRing(const MemifMessage& message, FileDescriptor descriptor);
  std::optional<MemifMessage> makeMemory(unsigned log2Slots);

  const std::string name_;
  const Accepted accepted_;
  State state_ = State::kAwaitingInit;
  std::string ended_;
  std::optional<MemifMessage> region_;  // kept until the first ring tells its shape
  FileDescriptor regionMemory_;
  std::unique_ptr<MemifMemory> memory_;
  FileDescriptor events_;
};

class MemifClientHandshake {
 public:
  struct Packet {
    MemifMessage message{};
    int descriptor = -1;  // goes with it; borrowed
  };
  struct Server {
    std::uint32_t interfaceId = 0;  // which of the server's interfaces
    std::string secret;             // the server's; at most 23 bytes
  };

  // `memory` is one that MemifMemory::create made; `events` goes with both rings: the server may write to it when it
  // has sent frames.
  MemifClientHandshake(Server server, const MemifMemory& memory, int events)
      : server_(std::move(server)), memory_(memory), events_(events) {}

  // What to send after one message: nothing, or all that the server must know.
  std::vector<Packet> receive(const MemifMessage& message);

  bool connected() const { return state_ == State::kConnected; }
  // Why it will not come about; empty: it may.
  const std::string& ended() const { return ended_; }

 private:
  enum class State : std::uint8_t { kAwaitingHello, kDescribing, kConnected, kEnded };

  std::vector<Packet> end(std::string reason);
  std::vector<Packet> introduce(const MemifMessage& hello);

  const Server server_;
  const MemifMemory& memory_;
  const int events_;
  State state_ = State::kAwaitingHello;
  std::string ended_;
};

}  // namespace gloo_bypass::dpdk
