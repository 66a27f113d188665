// Where frames enter and leave the fabric: seam between the switch and what a host is attached by.
//
// Thread: the switch's, one owner. Nothing here waits: a port that can be slept on puts its descriptors into the epoll
// set that it was made with.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tools/fabric/switch/frame_arena.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::fabric {

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // `frame` is valid during the call only.
  virtual void onFrame(std::span<const std::byte> frame) = 0;
};

struct FabricPortCounters {
  std::uint64_t framesIn = 0, bytesIn = 0;    // handed to the sink
  std::uint64_t framesOut = 0, bytesOut = 0;  // taken by the other end's ring
  std::uint64_t malformed = 0;                // shorter than an Ethernet header, chained, or an impossible descriptor
  std::uint64_t tooLong = 0;                  // longer than the fabric's MTU: dropped
  std::uint64_t missed = 0;                   // lost before the fabric could read them (the driver's ring was full)
  std::uint64_t unfinished = 0;               // of the first frames: without a right TCP or UDP checksum; passed on
};

class FabricPort {
 public:
  // The longest frame that it takes in, in bytes.
  explicit FabricPort(std::size_t longestFrame = SIZE_MAX) : longestFrame_(longestFrame) {}
  virtual ~FabricPort() = default;

  // "memif /run/fabric/rank0.sock"
  virtual std::string describe() const = 0;
  // Whether somebody is at the other end.
  virtual bool connected() const = 0;
  // Connects and disconnects; cheap, called about each millisecond and whenever a descriptor was ready.
  virtual void service() = 0;
  // At most `maxFrames` to the sink. Returns how many were taken from the ring.
  virtual std::size_t receive(FrameSink& sink, std::size_t maxFrames) = 0;
  // Copies a prefix of the frames to the other end; returns its length. Short: the ring is full.
  virtual std::size_t transmit(std::span<Frame* const> frames) = 0;
  // Whether frames that arrive shall wake the sleeper. After `true` the caller polls once more before it sleeps.
  virtual void wakeOnFrames(bool wanted) = 0;
  virtual FabricPortCounters counters() const { return counters_; }

 protected:
  // Counts a frame that came in and gives it to the sink, or drops it if it is too short or too long.
  void take(std::span<const std::byte> frame, FrameSink& sink) {
    if (frame.size() < dpdk::kEthernetHeaderBytes) {
      ++counters_.malformed;
    } else if (frame.size() > longestFrame_) {
      ++counters_.tooLong;
    } else {
      ++counters_.framesIn;
      counters_.bytesIn += frame.size();
      sink.onFrame(frame);
    }
  }
  // Puts a descriptor into the set that the switch sleeps on.
  static bool watch(int epoll, int descriptor, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
  }

  const std::size_t longestFrame_;
  FabricPortCounters counters_;
};

}  // namespace gloo_bypass::fabric
