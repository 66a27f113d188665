// One shared-memory link to one peer process, over DPDK's net_memif driver.
//
// The driver tells its two ends apart as client (owns the shared memory) and server, and makes them meet over a Unix
// socket. When that socket breaks, its interrupt thread unmaps the rings AT ONCE, also while another thread is copying
// out of them: a killed peer would crash every survivor. So the drivers never talk directly: each talks to its own
// process over a local socket, and the two processes relay the dozen packets of the handshake over a socket of
// theirs ("cross"). The driver never sees the peer go; we do, drain what is left in the ring, then close the device
// from the owner's thread. The same relay authenticates the peer, hands over the wake-up page, and ends reconnects.
//
//   connector (smaller port id, driver's client)       acceptor (driver's server)
//   kLocating --connect, hello--> kGreeting            kAwaiting --hello arrives, hello back--+
//                                     | hello                                                  |
//                                     v                                                        v
//                                 kAttaching  <------- relays the drivers' handshake -----> kAttaching
//                                     | driver's link up                                       |
//                                     v                                                        v
//                                   kUp ---- peer's end of `cross` closed, or bye ----> kDraining --ring empty--> kDown
//   every state but kUp: a failure leads to kDown at once.
//
// Thread: the port's owner. What ends a link may wait for EAL's interrupt thread (interrupt_thread.h), else nothing waits.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/ethernet_device.h"
#include "transport/dpdk/frame.h"
#include "transport/dpdk/memif_ring.h"
#include "transport/dpdk/packet_buffers.h"
#include "transport/dpdk/packet_socket.h"
#include "transport/dpdk/port_address.h"
#include "transport/dpdk/wake_page.h"

namespace gloo_bypass::dpdk {

// One end of a link in our own driver. `number` is the device's for as long as it exists: a server's interface id, and
// part of the name of a client's socket.
struct MemifDevice {
  std::unique_ptr<EthernetDevice> device;
  std::uint32_t number = 0;
};

// What all links of one port share. Outlives them.
struct MemifShared {
  MemifAddress self;
  std::string base;  // directory and port id: the sockets' common beginning
  WakePage page;
  MempoolHandle receivePool;  // the driver asks for one, and never uses it (memif_ring.h)
  FileDescriptor epoll;  // sockets whose events must wake the owner
  // Those that no link uses, stopped, by role; together with those in use at most DPDK's ports. The next links take them:
  // each device that the driver closes costs 27 KB of DPDK's memory (its transmit queue's interrupt handle), and with a
  // port's last server device it would forget its listening socket, open.
  std::array<std::vector<MemifDevice>, 2> spares;
  std::vector<MemifDevice>& sparesOf(MemifRole role) { return spares[role == MemifRole::kServer ? 1 : 0]; }
};

// What the frames of a link carry in front.
UdpFlow memifFlow(const MemifAddress& from, const MemifAddress& to);

// First packet on a cross connection, both ways; the sender's wake-up page rides along, and its eventfd where it has one.
struct MemifHello {
  PortId senderId{};
  PortId targetSecret{};
  std::uint32_t deviceId = 0;  // chosen by the acceptor: the drivers' interface id
};
PacketIo sendHello(int fd, const MemifHello& hello, const WakePage& page);
// kClosed also for what is no hello, or brings no page.
PacketIo receiveHello(int fd, MemifHello& hello, WakePage& page);

class MemifLink {
 public:
  enum class State : std::uint8_t { kLocating, kAwaiting, kGreeting, kAttaching, kUp, kDraining, kDown };

  MemifLink(MemifShared& shared, LinkId id, MemifAddress peer);
  // Tells the peer that the port closes, and closes the device.
  ~MemifLink();
  MemifLink(const MemifLink&) = delete;
  MemifLink& operator=(const MemifLink&) = delete;

  LinkId id() const { return id_; }
  const MemifAddress& peer() const { return peer_; }
  State state() const { return state_; }
  // Waits for something that raises no event: service() must be called about each millisecond.
  bool needsTicks() const { return state_ == State::kLocating || state_ == State::kAttaching; }
  const Error& error() const { return error_; }  // in kDraining and kDown

  // Tells the peer that this link ends, though the port lives on: kPeerClosed there.
  void leave();
  // Acceptor: a connection that said hello in the peer's name.
  void adopt(FileDescriptor cross, WakePage peerPage);
  // Does what can be done without waiting.
  void service();
  // kDraining -> kDown, the ring being empty: closes the device.
  void finishDraining();

  // Only in kUp and kDraining.
  MemifReceiveRing& received() { return received_; }
  // Only in kUp.
  MemifSendRing& toSend() { return toSend_; }
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
  // After frames were released. A peer that waits for room is worth waking for a good part of the ring (`ringSlots`), or when nothing
  // is left to receive: on a shared core it would otherwise run for a few slots at a time.
  void onSlotsFreed(std::size_t count, bool drained, std::size_t ringSlots) {
    freedSlots_ += count;
    if (freedSlots_ == 0 || (!drained && freedSlots_ < ringSlots / 2)) return;
    freedSlots_ = 0;
    peerPage_.wakeIfWaitingForSpace();
  }
  const FrameTemplate& headers() const { return headers_; }

 private:
  void locate();
  void greet();
  void attach();
  void connectServerEnd();
  void relay();
  // False: one side is closed.
  bool pump(int from, int to);
  MemifRole role() const { return shared_.self.portId < peer_.portId ? MemifRole::kClient : MemifRole::kServer; }
  void watchCross();
  bool watch(int fd);
  // `lastWord`: what it said last; 0: nothing yet.
  void peerGone(std::byte lastWord = {});
  std::byte hearLastWord();
  void fail(ErrorCode code, std::string message);
  void releaseDevice();
  void awaitDriver();
  // A spare one, or else to be made with the link's id.
  void chooseDevice();
  // Makes it, or starts the spare one.
  Status startDevice(const std::string& socketPath);

  MemifShared& shared_;
  const LinkId id_;
  const MemifAddress peer_;
  State state_;
  Error error_;
  std::uint32_t interfaceId_ = 0;  // the server's, at both ends
  FileDescriptor cross_;  // to the peer's process
  FileDescriptor local_;  // to our own driver
  bool driverSpoke_ = false;  // over local_
  WakePage peerPage_;
  bool wakePending_ = false;
  bool refused_ = false;
  std::size_t freedSlots_ = 0;  // since the peer was last woken for room
  FrameTemplate headers_;
  MemifMemory memory_;
  MemifReceiveRing received_;
  MemifSendRing toSend_;
  MemifDevice own_;
};

}  // namespace gloo_bypass::dpdk
