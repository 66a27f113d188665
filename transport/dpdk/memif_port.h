// Link mode memif: a port of shared-memory links, one to each peer process, made on demand.
//
// Frames are written and read in place in the ring (memif_ring.h).
//
// Memory of a link: two rings of 2^n frames (7.5 MiB at 64 x 60 KiB) shared with the peer. No DPDK EAL.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"
#include "transport/dpdk/memif_link.h"
#include "transport/dpdk/port_capture.h"
#include "transport/dpdk/self_ring.h"

namespace gloo_bypass::dpdk {

// `doorbell`: ends the sleep of an owner that has other ports too (sleepElsewhere); -1: none. Makes a link to itself
// first. Errors: kUnavailable: this process cannot share memory; kConfiguration; kExhausted.
Result<std::unique_ptr<PacketPort>> makeMemifPort(const TransportConfig& config, int doorbell = -1);

class MemifPort final : public PacketPort {
 public:
  // `listener` is the socket at `shared->base` + ".sock".
  MemifPort(std::unique_ptr<MemifShared> shared, FileDescriptor listener, FileDescriptor stopEvent);
  ~MemifPort() override;
  // Starts listening for events. Call once, before anything else. `capture` may be null.
  Status start(std::unique_ptr<PortCapture> capture);

  std::vector<std::byte> localAddress() const override { return encodeAddress(shared_->self); }
  std::string describe() const override;
  PacketPortTraits traits() const override { return {.wakesForRoom = true}; }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override;
  // True for a process of this machine that uses the same directory. Prints one line for the first process of this
  // machine that shares no memory.
  bool reaches(std::span<const std::byte> remoteAddress) const override;
  void closeLink(LinkId link) override;
  LinkProperties linkProperties(LinkId link) const override;
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override;
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override;
  void wakePeers() override;
  void onTick(TimePoint now) override;
  void armWakeup() override {
    shared_->page.arm(sleepsElsewhere_ ? WakePage::Sleep::kElsewhere : WakePage::Sleep::kHere);
  }
  void block(Duration timeout) override;
  void disarmWakeup() override { shared_->page.disarm(); }
  void wake() override { shared_->page.wakeIfSleeping(); }
  PortCounters counters() const override;
  void finishCapture() override;
  // Lets the owner sleep where `doorbell` ends the sleep.
  void sleepElsewhere(bool elsewhere) override { sleepsElsewhere_ = elsewhere; }
  Duration longestSleep() const override;

 private:
  // A connection from a peer to which we have no link yet. After its hello it may wait as long as it likes, since it
  // knows this port's secret; before, it may be anyone's.
  struct Stranger {
    FileDescriptor fd;
    bool greeted = false;
    TimePoint since = kNever;  // if silent: time of the first tick after it came
    MemifHello hello;
    WakePage page;
  };

  void watchSockets();  // body of the control thread
  void serviceControl();
  void serviceStrangers();
  std::ptrdiff_t silentStrangers() const { return std::ranges::count(strangers_, false, &Stranger::greeted); }
  std::vector<Stranger>::iterator oldestSilent() { return std::ranges::find(strangers_, false, &Stranger::greeted); }
  bool roomForSilent();
  // If too many are silent, it replaces the oldest.
  void addStranger(Stranger stranger);
  void keepSpare();
  bool refuseStranger(const std::string& why);
  void sayExhausted(const std::string& why);
  // False: drop it.
  bool greetStranger(Stranger& stranger);
  // After its hello it sends nothing until it is answered, unless it leaves.
  static bool stillWaits(const Stranger& stranger);
  void introduce(MemifLink& link);
  std::size_t receiveLink(MemifLink& link, PacketSink& sink, std::size_t maxDatagrams);
  void deliver(MemifLink& link, PacketSink& sink, std::span<const std::byte> frame);
  void reportDown(MemifLink& link, PacketSink& sink);
  std::size_t transmitSelf(std::span<const OutgoingDatagram> datagrams);
  std::size_t fill(MemifLink& link, std::span<const OutgoingDatagram> datagrams);
  bool noteRefused(MemifLink& link, bool refused);
  MemifLink* find(LinkId id) const;

  const std::unique_ptr<MemifShared> shared_;
  const pid_t pid_;
  const std::size_t maxDatagramBytes_;
  FileDescriptor listener_;
  FileDescriptor stopEvent_;
  FileDescriptor spare_;  // a spare descriptor, closed for a moment to tell a stranger that none is left
  bool saidExhausted_ = false;
  mutable bool saidNoMemory_ = false;
  std::vector<std::unique_ptr<MemifLink>> links_;  // by id - kFirstLink; empty: closed, or reported down
  std::vector<MemifLink*> polled_;                 // not yet reported down
  std::vector<Stranger> strangers_;                // the oldest first
  SelfRing self_;
  FrameTemplate selfHeaders_;  // the headers that its frames would have
  LinkId selfLink_ = 0;
  std::size_t nextPolled_ = 0;
  bool selfFirst_ = false;
  PortCounters counters_;
  std::unique_ptr<PortCapture> capture_;     // null: none
  std::atomic<bool> controlPending_{false};  // set by the control thread
  bool sleepsElsewhere_ = false;
  int refusedLinks_ = 0;                 // links with a full ring at the last attempt
  std::vector<LinkId> wakePending_;      // links that transmit() used since wakePeers()
  TimePoint now_ = kNever;               // of the last tick
  std::atomic<bool> needsTicks_{false};  // read by block()
  // Read by block() too: a timer ends silent connections, or the wait of those that are not accepted yet.
  std::atomic<bool> awaitsSilent_{false};
  std::thread control_;
};

}  // namespace gloo_bypass::dpdk
