// Seam 2: a port of unreliable datagrams, plain or sealed (transport/security). transport/dpdk and transport/udp
// implement it, and tests in memory (tests/support/loopback_port.h). A datagram is what UDP carries: our wire header
// and the payload. The port adds and strips the headers of UDP, IP and Ethernet.
//
// Thread: one owner at a time calls every method but block() and wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/wire/packet.h"
#include "transport/wire/rail_id.h"

namespace gloo_bypass {

// A path to one peer process. Opened by openLink, stable until closeLink; never reused. A port does not count who
// opened it: its user closes a link once, when nobody uses it any more.
using LinkId = std::uint32_t;

// One datagram as two spans, gathered by the port.
struct OutgoingDatagram {
  std::span<const std::byte> header;   // may be empty; copied when transmit() returns
  std::span<const std::byte> payload;  // may be empty; copied when transmit() returns
  bool lent = false;                   // `payload` stays as it is, and need not be copied before wakePeers() returns
};

// Receives what a port hands up. Called inside receive(); must not call the port.
class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // Datagrams have arrived, just now or earlier, and will be handed up. A port that may lose datagrams calls it once
  // for what it takes at a time: on its paths times of arrival are measured.
  virtual void onArrivals() noexcept {}
  // `datagram` is valid during the call only. It may lie in memory that the peer can write to meanwhile: read a byte
  // once before trusting what it says.
  virtual void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept = 0;
  // A datagram to this port has arrived that no link's peer has sent; the port drops it.
  virtual void onStranger() noexcept {}
  // The link will carry nothing any more: the peer's process ended, its port is closed, or the device is gone.
  // kPeerClosed: its port lives on, and has closed this link; openLink(the same address) makes another. The link is
  // still to be closed.
  virtual void onLinkDown(LinkId link, const Error& error) noexcept = 0;
  // A datagram of so many bytes did not fit, as this machine, or an error message of the network about a session's
  // datagram, says. A hint: the sessions find out what passes.
  virtual void onDatagramTooLarge(LinkId /*link*/, std::size_t /*bytes*/) noexcept {}
  // Whether `datagram`, or what an error message of the network quotes of one, was sent over `link` by a session that
  // lives. An error message counts only then: whoever is not on the path cannot know a session's id.
  virtual bool sentBySession(LinkId /*link*/, std::span<const std::byte> /*datagram*/) const noexcept { return false; }
  // An error message that counts says that the peer's port is closed. True: the link has ended. False: whoever sees
  // datagrams pass can forge such a message, so the sessions ask their peer, and end by themselves if it is gone.
  virtual bool onPortUnreachable(LinkId /*link*/) noexcept { return true; }
};

struct LinkProperties {
  std::size_t maxDatagramBytes = 0;  // header + payload that one datagram can carry
  std::size_t firstDatagramBytes =
      wire::kEthernetDatagramBytes;  // larger ones are probed first where the link may lose them
  bool lossless = false;             // memory link: loses nothing, corrupts nothing; full means back-pressure
  bool verified = false;             // whoever receives checks a checksum over each datagram, the kernel or a NIC
  bool local = false;                // both ends on one machine
  bool exempt = false;  // only the two ends' processes have the memory that carries it: sealing would add nothing
  // Datagrams of one session before the next session has its turn, and wakePeers() is called. Few, so that a memory
  // link's buffers are still in the cache when they are copied out and used again.
  std::size_t transmitBurst = 16;
};

struct PortCounters {
  std::uint64_t packetsSent = 0, packetsReceived = 0;
  std::uint64_t bytesSent = 0, bytesReceived = 0;     // of whole frames, Ethernet header on
  std::uint64_t transmitFull = 0;                     // bursts cut short by a full ring
  std::uint64_t droppedMalformed = 0;                 // not Ethernet/IPv4/UDP to us
  std::uint64_t droppedForeign = 0;                   // for another address or port
  std::uint64_t droppedNoBuffer = 0;                  // mempool empty (the driver's counter included); UDP: socket
                                                      // full, or from no peer: the kernel counts both as one
  std::uint64_t captureFrames = 0, captureBytes = 0;  // in the port's capture; bytes of the frames as they were
  std::uint64_t captureLost = 0;                      // frames that are not in it

  PortCounters& operator+=(const PortCounters& other) {
    for (const auto field : {&PortCounters::packetsSent, &PortCounters::packetsReceived, &PortCounters::bytesSent,
                             &PortCounters::bytesReceived, &PortCounters::transmitFull, &PortCounters::droppedMalformed,
                             &PortCounters::droppedForeign, &PortCounters::droppedNoBuffer,
                             &PortCounters::captureFrames, &PortCounters::captureBytes, &PortCounters::captureLost}) {
      this->*field += other.*field;
    }
    return *this;
  }
};

// What stays the same as long as a port lives.
struct PacketPortTraits {
  // Datagrams worth taking in one receive(); few for the same reason as LinkProperties::transmitBurst.
  std::size_t receiveBurst = 4;
  // What arrives while nobody looks waits in a long buffer. Else in a short ring, and soon the sender waits too.
  bool gathers = false;
  // armWakeup() also covers room for what transmit() refused. Else look again now and then.
  bool wakesForRoom = false;
  // Whoever rings here ends block(), from another process too (base/doorbell.h); -1: there is none.
  int doorbell = -1;
};

class PacketPort {
 public:
  virtual ~PacketPort() = default;

  // What a peer's openLink needs to reach this port; travels through the rendezvous store as opaque bytes.
  virtual std::vector<std::byte> localAddress() const = 0;
  // One line for people: "memif in /tmp/x", "af_packet on eth0 10.0.0.2:47777".
  virtual std::string describe() const = 0;
  virtual PacketPortTraits traits() const { return {}; }

  // Begins to make the path to the port that `remoteAddress` (hostile bytes) names; the same address
  // gives the same link. Never waits: a link may take a while to carry datagrams, until then
  // transmit accepts none. `remoteAddress` of another kind of port gives kConfiguration naming both.
  virtual Result<LinkId> openLink(std::span<const std::byte> remoteAddress) = 0;
  // How many ways lead to that peer, each over another interface; the peer's port gives the same answer about this one.
  // openLink() is way 0; a further one, at most kMaxRails - 1, is opened here. A session may share long messages among
  // them.
  static constexpr std::size_t kMaxRails = wire::kMaxRails;
  virtual std::size_t rails(std::span<const std::byte> /*remoteAddress*/) const { return 1; }
  virtual Result<LinkId> openRail(std::span<const std::byte> remoteAddress, std::size_t /*rail*/) {
    return openLink(remoteAddress);
  }
  // `link` went down, or is used no more. What transmit() took, and wakePeers() has seen, still reaches the peer if the
  // way is good.
  virtual void closeLink(LinkId link) = 0;
  virtual LinkProperties linkProperties(LinkId link) const = 0;
  // For people, "UDP from port 40123 of 10.0.0.1 on eth0 to 10.0.0.2:47777"; empty: nothing lies between the two ends.
  virtual std::string describeLink(LinkId /*link*/) const { return ""; }
  // Whether openLink(remoteAddress) would lead to that peer, where it is not the port's users' mistake that it does
  // not: memory links reach processes of one machine that share a directory. The peer's port gives the same answer
  // about this one.
  virtual bool reaches(std::span<const std::byte> /*remoteAddress*/) const { return true; }

  // Hands up to `maxDatagrams` received datagrams (over all links) to `sink`; returns how many.
  virtual std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) = 0;
  // Sends a prefix of `datagrams`; returns its length. Short is back-pressure: keep the rest.
  virtual std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) = 0;
  // Wakes the sleeping peers that transmit() has put something for since the last call. A peer is woken once a batch,
  // not for its first datagram: on a shared core it would run, find one, and sleep again. A port that gathers what
  // transmit() took sends it now.
  virtual void wakePeers() {}
  // What is wrong with `link` on this machine, as far as it shows, for errors of sessions that hear nothing; empty:
  // nothing.
  virtual std::string trouble(LinkId /*link*/) const { return {}; }
  // Timers of the port itself (ARP, link set-up). Cheap; called in every poll round about each millisecond.
  virtual void onTick(TimePoint /*now*/) {}

  // Blocking. The owner calls armWakeup(), then receive() once more, and, if that gave nothing,
  // block(): sleeps until a datagram may have arrived, wake() was called, or `timeout` passed
  // (spurious returns are allowed). disarmWakeup() ends it, also when block() was never called, and
  // may be called while ANOTHER thread is inside block(); block() itself runs without exclusive access.
  virtual void armWakeup() = 0;
  virtual void block(Duration timeout) = 0;
  virtual void disarmWakeup() = 0;
  // Any thread, async-signal-unsafe, cheap when nobody is blocked.
  virtual void wake() = 0;
  // Whether the owner, once armed, does not call block() but sleeps in something else, which this port's peers can end
  // because the port was made with its doorbell(); for at most longestSleep().
  virtual void sleepElsewhere(bool /*elsewhere*/) {}
  virtual Duration longestSleep() const { return Duration::max(); }

  virtual PortCounters counters() const = 0;

  // The process ends: a capture of this port's frames, if there is one, is completed; later frames are not in it.
  virtual void finishCapture() {}
};

}  // namespace gloo_bypass
