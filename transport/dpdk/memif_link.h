// One shared-memory link to one peer process.
//
// In memif the client owns the shared memory, and the two ends meet over a Unix socket (memif_handshake.h). Before that
// the two processes exchange our own hello, which authenticates them and passes on the wake-up pages. The socket stays
// open: when it closes, the peer has ended. The owner then drains the ring and unmaps the memory, in its own thread, so
// that nothing is being copied out of it.
//
//   connector (smaller port id, memif's client)        acceptor (memif's server)
//   kLocating --connect, hello--> kGreeting            kAwaiting --hello arrives, hello back--+
//                                     | hello                                                  |
//                                     v                                                        v
//                                 kAttaching  <---------- memif's handshake ------------> kAttaching
//                                     | connected                                              | connect
//                                     v                                                        v
//                                   kUp ---- peer's end of `cross` closed, or bye ----> kDraining --ring empty--> kDown
//   Every state but kUp: a failure leads to kDown at once.
//
// Thread: the port's owner. Never blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "transport/base/config.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/packet_socket.h"
#include "transport/base/status.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/frame.h"
#include "transport/dpdk/memif_handshake.h"
#include "transport/dpdk/memif_ring.h"
#include "transport/dpdk/port_address.h"
#include "transport/dpdk/wake_page.h"

namespace gloo_bypass::dpdk {

// Shared by all links of one port. Outlives them.
struct MemifShared {
  MemifAddress self;
  std::string base;          // directory and port id: the common beginning of the sockets' paths
  FileDescriptor directory;  // kept from aging
  WakePage page;
  FileDescriptor epoll;   // sockets that wake the owner
  FileDescriptor events;  // memif requires one with each ring; no one writes to it, since the pages wake
  MemifRingShape shape() const { return {.bufferBytes = self.bufferBytes, .log2Slots = self.log2Slots}; }
};

// The address fields in a link's frames.
UdpFlow memifFlow(const MemifAddress& from, const MemifAddress& to);

// First packet on a cross connection, both ways. The sender's wake-up page comes with it, and its doorbell if it has
// one.
struct MemifHello {
  PortId senderId{};
  PortId targetSecret{};
  std::uint32_t interfaceId = 0;  // the acceptor chooses it: memif's name for its end
  std::byte lastWord{};           // instead of a hello; 0: none
};
// Reports, over a connection that we give up, that this process has no descriptor left for it.
void sayNoDescriptors(int fd);
PacketIo sendHello(int fd, const MemifHello& hello, const WakePage& page);
// Also kClosed: not a hello, no page, or a doorbell that is not one.
PacketIo receiveHello(int fd, MemifHello& hello, WakePage& page);

class MemifLink {
 public:
  enum class State : std::uint8_t { kLocating, kAwaiting, kGreeting, kAttaching, kUp, kDraining, kDown };

  MemifLink(MemifShared& shared, LinkId id, MemifAddress peer, MemifPages pages);
  // Announces to the peer that the port closes.
  ~MemifLink();
  MemifLink(const MemifLink&) = delete;
  MemifLink& operator=(const MemifLink&) = delete;

  LinkId id() const { return id_; }
  const MemifAddress& peer() const { return peer_; }
  State state() const { return state_; }
  // True while it waits for something that raises no event: call service() about each millisecond.
  bool needsTicks() const { return state_ == State::kLocating; }
  const Error& error() const { return error_; }  // in kDraining and kDown

  // Announces that this link ends though the port lives on: kPeerClosed at the peer.
  void leave();
  // Acceptor: a connection with a hello in the peer's name.
  void adopt(FileDescriptor cross, WakePage peerPage);
  // Does what it can without blocking.
  void service();
  // kDraining -> kDown; the ring is empty.
  void finishDraining();

  // Only in kUp and kDraining.
  MemifReceiveRing& received() { return rings_->received; }
  // Only in kUp.
  MemifSendRing& toSend() { return rings_->toSend; }
  // The peer has overwritten a ring with nonsense: kDown.
  void ringBroken();
  // After a publish: the peer must be woken. True: the mark is new.
  bool markForWake() { return !std::exchange(wakePending_, true); }
  void wakePeer() {
    wakePending_ = false;
    if (state_ == State::kUp) peerPage_.wakeIfSleeping();
  }
  // Whether the ring was full at the last attempt. True: that has changed.
  bool setRefused(bool refused) { return std::exchange(refused_, refused) != refused; }
  // After a release of frames. Waking a peer that waits for room pays once a good part of the ring (`ringSlots`) is
  // free, or nothing is left to receive: on a shared core it would otherwise run for a few slots at a time.
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
  // Reads what the peer has sent.
  void hear();
  // In kAttaching. Sends the answers too.
  void answerServer(const MemifMessage& message);
  void answerClient(const MemifMessage& message, FileDescriptor attached);
  void establish();
  MemifRole role() const { return shared_.self.portId < peer_.portId ? MemifRole::kClient : MemifRole::kServer; }
  bool watchCross();
  // `lastWord`: the peer's last byte; 0: none yet.
  void peerGone(std::byte lastWord = {});
  std::byte hearLastWord();
  void fail(ErrorCode code, std::string message);
  void failExhausted();  // errno gives the reason

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
  std::size_t freedSlots_ = 0;  // since the last wake-up of the peer for room
  FrameTemplate headers_;
  int messagesHeard_ = 0;                         // in memif's handshake
  std::optional<MemifClientHandshake> asClient_;  // one of the two, in kAttaching
  std::optional<MemifServerHandshake> asServer_;
  std::unique_ptr<MemifMemory> memory_;
  std::optional<Rings> rings_;
};

}  // namespace gloo_bypass::dpdk
