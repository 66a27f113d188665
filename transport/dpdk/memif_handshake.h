// Both sides of memif's handshake (protocol 2.0): checks each message of the other side and produces the answer.
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
// The client sends all of it at once, after the hello. DPDK's driver waits for each acknowledgement; a server sees no
// difference.
//
// We do not use DPDK's own driver: it unmaps the rings in its own thread the moment a peer ends, even while a frame is
// being copied out of them, allows 32 devices in a process, and needs the EAL. Pure, except that the server maps
// memory.
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

// A handshake has at most eight messages each way; no correct peer sends more.
inline constexpr int kMaxMemifMessages = 32;

// The first message, the server's. `name` is for the client's log.
MemifMessage memifHello(std::string_view name);
// With a reason for the client's log.
MemifMessage memifDisconnect(std::string_view reason);

class MemifServerHandshake {
 public:
  struct Accepted {
    // A client with smaller buffers is refused: longer frames would be chained, which corrupts them.
    std::size_t longestFrame = 0;
    std::optional<MemifRingShape> shape;  // the only accepted one; empty: any
    MemifPages pages = MemifPages::kAtOnce;
  };

  // `name` is for the client's log.
  MemifServerHandshake(std::string name, const Accepted& accepted) : name_(std::move(name)), accepted_(accepted) {}

  // The answer to one message and to its descriptor. After an error the answer is a disconnect: send it, and close.
  // nullopt: no answer.
  std::optional<MemifMessage> receive(const MemifMessage& message, FileDescriptor descriptor);

  bool connected() const { return state_ == State::kConnected; }
  // Why the client was refused, or its reason for leaving; empty: neither.
  const std::string& ended() const { return ended_; }

  // It ended because this process has no memory left.
  bool exhausted() const { return memory_ && memory_->exhausted(); }
  // Once connected, and only once.
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
  std::optional<MemifMessage> region_;  // kept until the first ring shows its shape
  FileDescriptor regionMemory_;
  std::unique_ptr<MemifMemory> memory_;
  FileDescriptor events_;
};

class MemifClientHandshake {
 public:
  struct Packet {
    MemifMessage message{};
    int descriptor = -1;  // sent along; borrowed
  };
  struct Server {
    std::uint32_t interfaceId = 0;  // which of the server's interfaces
    std::string secret;             // of the server; at most 23 bytes
  };

  // `memory` comes from MemifMemory::create. `events` is sent with both rings: the server may write to it after it has
  // sent frames.
  MemifClientHandshake(Server server, const MemifMemory& memory, int events)
      : server_(std::move(server)), memory_(memory), events_(events) {}

  // The packets to send after one message: none, or the client's whole description.
  std::vector<Packet> receive(const MemifMessage& message);

  bool connected() const { return state_ == State::kConnected; }
  // Why the handshake failed; empty: it has not.
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
