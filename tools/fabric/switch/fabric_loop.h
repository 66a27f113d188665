// Runs a fabric's switch on the calling thread until it is told to stop: when it polls, and how it sleeps.
//
//   frames moved            poll again at once
//   nothing for kSpin       nap to the next due frame, kNap at most: more frames of a burst may follow
//   nothing for kLinger     sleep until the next due frame or until a port wakes it, kLongestSleep at most
//
// Two cores are the norm, and the ranks want them: a nap gives the processor away, and an idle fabric wakes some 200
// times a second.
#pragma once

#include <atomic>
#include <functional>

#include "tools/fabric/switch/fabric_switch.h"
#include "transport/base/time.h"

namespace gloo_bypass::fabric {

// CLOCK_MONOTONIC.
TimePoint monotonicTime();

// Gives the calling thread real-time priority, so that frames are in time while the ranks compute: on two busy cores
// one is late by 4 ms otherwise, and by 0.1 to 0.5 ms with it. The kernel keeps some time for all others. False: no
// right to (root, CAP_SYS_NICE, ulimit -r).
bool goBeforeOthers();

class FabricLoop {
 public:
  // `epoll` is the set that the ports put their descriptors into.
  FabricLoop(FabricSwitch& fabricSwitch, int epoll) : switch_(fabricSwitch), epoll_(epoll) {}

  // `report` is called about every `interval` (kNever-like: Duration::max()). Returns when `stop` is set, which a
  // signal handler may do, or when `end` has come.
  void run(const std::atomic<bool>& stop, TimePoint end, Duration interval,
           const std::function<void(TimePoint)>& report);

 private:
  void idle(TimePoint now, TimePoint limit, Duration sinceMoved);
  void waitForPorts(Duration limit);
  void setArmed(bool armed);

  FabricSwitch& switch_;
  const int epoll_;
  bool armed_ = false;  // frames wake us; kept while nothing moves, since it costs a port some system calls
};

}  // namespace gloo_bypass::fabric
