// One shared-memory link to one peer process.
//
// Memif tells the two ends apart as client (owns the shared memory) and server, and makes them meet over a Unix socket
// (memif_handshake.h). Before that the two processes say hello in words of ours, which authenticates them and hands
// over the wake-up pages. After it the socket stays: that it closes says that the peer has ended. What is left in the
// ring is then still drained; the memory is unmapped by the owner's thread, in which nothing is being copied out of it.
//
//   connector (smaller port id, memif's client)        acceptor (memif's server)
//   kLocating --connect, hello--> kGreeting            kAwaiting --hello arrives, hello back--+
//                                     | hello                                                  |
//                                     v                                                        v
//                                 kAttaching  <---------- memif's handshake ------------> kAttaching
//                                     | connected                                              | connect
//                                     v                                                        v
//                                   kUp ---- peer's end of `cross` closed, or bye ----> kDraining --ring empty--> kDown
//   every state but kUp: a failure leads to kDown at once.
//
// Thread: the port's owner. Nothing waits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "transport/base/config.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/frame.h"
#include "transport/dpdk/memif_handshake.h"
#include "transport/dpdk/memif_ring.h"
#include "transport/dpdk/packet_socket.h"
#include "transport/dpdk/port_address.h"
#include "transport/dpdk/wake_page.h"

namespace gloo_bypass::dpdk {

// What all links of one port share. Outlives them.
struct MemifShared {
  MemifAddress self;
  std::string base;  // directory and port id: the sockets' common beginning
  WakePage page;
  FileDescriptor epoll;   // sockets whose events must wake the owner
  FileDescriptor events;  // memif wants one with each ring; nobody writes to it, since the pages wake
  MemifRingShape shape() const { return {.bufferBytes = self.bufferBytes, .log2Slots = self.log2Slots}; }
};

// What the frames of a link carry in front.
UdpFlow memifFlow(const MemifAddress& from, const MemifAddress& to);

// First packet on a cross connection, both ways; the sender's wake-up page rides along, and its doorbell where it has
// one.
struct MemifHello {
  PortId senderId{};
  PortId targetSecret{};
  std::uint32_t interfaceId = 0;  // chosen by the acceptor: memif's name for its end
  std::byte lastWord{};           // instead of a hello; 0: none
};
// Says over a connection that is not wanted any more that this process has no descriptor left for it.
void sayNoDescriptors(int fd);
PacketIo sendHello(int fd, const MemifHello& hello, const WakePage& page);
// kClosed also for what is no hello, or brings no page, or a doorbell that is none.
PacketIo receiveHello(int fd, MemifHello& hello, WakePage& page);

class MemifLink {
 public:
  enum class State : std::uint8_t { kLocating, kAwaiting, kGreeting, kAttaching, kUp, kDraining, kDown };

  MemifLink(MemifShared& shared, LinkId id, MemifAddress peer, MemifPages pages);
  // Tells the peer that the port closes.
  ~MemifLink();
  MemifLink(const MemifLink&) = delete;
  MemifLink& operator=(const MemifLink&) = delete;

  LinkId id() const { return id_; }
  const MemifAddress& peer() const { return peer_; }
  State state() const { return state_; }
  // Waits for something that raises no event: service() must be called about each millisecond.
  bool needsTicks() const { return state_ == State::kLocating; }
  const Error& error() const { return error_; }  // in kDraining and kDown

  // Tells the peer that this link ends, though the port lives on: kPeerClosed there.
  void leave();
  // Acceptor: a connection that said hello in the peer's name.
  void adopt(FileDescriptor cross, WakePage peerPage);
  // Does what can be done without waiting.
  void service();
  // kDraining -> kDown, the ring being empty.
  void finishDraining();

  // Only in kUp and kDraining.
  MemifReceiveRing& received() { return rings_->received; }
  // Only in kUp.
  MemifSendRing& toSend() { return rings_->toSend; }
  // The peer has scribbled over a ring: kDown.
  void ringBroken();
  // After something was published: the peer is to be woken. True: it was not before.
  bool markForWake() { return !std::exchange(wakePending_, true); }
  void wakePeer() {
    wakePending_ = false;
    if (state_ == State::kUp) peerPage_.wakeIfSleeping();
  }
  // Whether the ring was full last time. True: that has changed.
  bool setRefused(bool refused) { return std::exchange(refused_, refused) != refused; }
  // After frames were released. A peer that waits for room is worth waking for a good part of the ring (`ringSlots`),
  // or when nothing is left to receive: on a shared core it would otherwise run for a few slots at a time.
  void onSlotsFreed(std::size_t count, bool drained, std::size_t ringSlots) {
    freedSlots_ += count;
    if (freedSlots_ == 0 || (!drained && freedSlots_ < ringSlots / 2)) return;
    freedSlots_ = 0;
    peerPage_.wakeIfWaitingForSpace();
  }
  const FrameTemplate& headers() const { return headers_; }

 private:
  struct Rings {
    Rings(const MemifMemory& memory, MemifRole role) : received(memory, role), toSend(memory, role) {}
    MemifReceiveRing received;
    MemifSendRing toSend;
  };

  void locate();
  void greet();
  // What the peer has said.
  void hear();
  // In kAttaching. The answers' sending included.
  void answerServer(const MemifMessage& message);
  void answerClient(const MemifMessage& message, FileDescriptor attached);
  void establish();
  MemifRole role() const { return shared_.self.portId < peer_.portId ? MemifRole::kClient : MemifRole::kServer; }
  bool watchCross();
  // `lastWord`: what it said last; 0: nothing yet.
  void peerGone(std::byte lastWord = {});
  std::byte hearLastWord();
  void fail(ErrorCode code, std::string message);
  void failExhausted();  // errno says how

  MemifShared& shared_;
  const LinkId id_;
  const MemifAddress peer_;
  const MemifPages pages_;
  State state_;
  Error error_;
  FileDescriptor cross_;  // to the peer's process
  WakePage peerPage_;
  bool wakePending_ = false;
  bool refused_ = false;
  std::size_t freedSlots_ = 0;  // since the peer was last woken for room
  FrameTemplate headers_;
  int messagesHeard_ = 0;                         // of memif's handshake
  std::optional<MemifClientHandshake> asClient_;  // one of the two, in kAttaching
  std::optional<MemifServerHandshake> asServer_;
  std::unique_ptr<MemifMemory> memory_;
  std::optional<Rings> rings_;
};

}  // namespace gloo_bypass::dpdk
