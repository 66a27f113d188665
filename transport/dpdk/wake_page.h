// Sleeping and waking across processes, without a system call while no one sleeps.
//
// Each port owns one page of shared memory (a sealed memfd: its size cannot change under a peer that has mapped it).
// Peers map it and check it after each burst.
//
// Why no wake-up is lost. The owner: (1) sleeping = 1, (2) full fence, (3) looks at its rings once more,
// (4) FUTEX_WAIT while sleeping == 1. A peer: (a) publishes into the ring, (b) full fence, (c) reads sleeping;
// if 1, exchanges it for 0 and wakes. Of the two fences one is first in the single total order: if the
// owner's, the peer's read (c) sees 1, and either the owner is in FUTEX_WAIT and is woken, or reaches it later and
// finds 0, which the kernel compares atomically with queueing. If the peer's fence is first, look (3) sees the
// packet. So a packet is seen by (3) or ends (4). The same holds for a free ring slot that a sender waits for.
//
// Several threads may be inside block(). disarm() does not wake them: a later arm() covers them again, so a
// thread that drives for a moment can take over from a blocked one without a system call.
//
// An owner that has other ports too sleeps in one of them, which polls descriptors: sleeping = 2, and a peer that would
// have ended the FUTEX_WAIT rings at the doorbell that came with the page (base/doorbell.h). The doorbell keeps its
// rings, so step (4) may come as late as it likes. No one can block the ringing peer. Peers that share a doorbell can
// keep each other's rings from being heard, which delays the owner, as overwriting the page does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::dpdk {

class WakePage {
 public:
  // A new page of this process.
  static Result<WakePage> create();
  // Maps a peer's page; refuses anything but a sealed memory file of the right size (hostile descriptor).
  static Result<WakePage> map(const FileDescriptor& fd);
  // The doorbell of the page's owner, if it has one. A peer's must be checked with Doorbell::isOne.
  void setDoorbell(FileDescriptor doorbell) { doorbell_ = std::move(doorbell); }

  int fd() const { return fd_.get(); }              // -1: a peer's page
  int doorbell() const { return doorbell_.get(); }  // -1: none

  // Owner's side.
  enum class Sleep : std::uint32_t { kNot = 0, kHere = 1, kElsewhere = 2 };
  void arm(Sleep where = Sleep::kHere);
  void disarm();
  void block(Duration timeout);
  // Whether the owner has unsent packets and wants a wake-up for free ring slots too.
  void setWaitsForSpace(bool waits) {
    if (shared_->waitsForSpace.load(std::memory_order_relaxed) != (waits ? 1U : 0U)) {
      shared_->waitsForSpace.store(waits ? 1 : 0, std::memory_order_relaxed);
    }
  }

  // Either side: call after publishing something for the owner.
  void wakeIfSleeping();
  // Call after freeing ring slots.
  void wakeIfWaitingForSpace();

 private:
  struct Shared {
    std::atomic<std::uint32_t> sleeping;  // the futex: a Sleep
    std::atomic<std::uint32_t> waitsForSpace;
  };

  struct Unmap {
    void operator()(Shared* page) const;
  };
  void wakeSlowly();

  bool sleeps() const { return shared_->sleeping.load(std::memory_order_relaxed) != 0; }

  FileDescriptor fd_;
  FileDescriptor doorbell_;
  std::unique_ptr<Shared, Unmap> shared_;
};

}  // namespace gloo_bypass::dpdk
