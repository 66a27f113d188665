// Forwards frames between the hosts of a fabric, each over the emulated edge from its source to its destination.
//
//   port of host i --receive--> whose MAC? --> edge i->j: lost, or when does it arrive? --> held until then --> port of
//   host j
//
// A frame to a known MAC address goes to that host, any other (ARP, and addresses not seen yet) to all of them, over
// each edge. Pure but for the ports: time is an argument. Thread: one owner.
//
// Bounds: frames under way share the arena's memory; frames that are due and that a host does not take wait in a queue
// of Limits::portQueueBytes for each host. What exceeds either is dropped and counted, never held back at its source.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/core/edge_emulator.h"
#include "tools/fabric/core/schedule.h"
#include "tools/fabric/switch/fabric_port.h"
#include "tools/fabric/switch/frame_arena.h"
#include "tools/fabric/switch/frame_observer.h"
#include "tools/fabric/switch/held_frames.h"
#include "tools/fabric/switch/mac_table.h"
#include "transport/base/duration_histogram.h"
#include "transport/base/time.h"

namespace gloo_bypass::fabric {

struct SwitchLimits {
  std::size_t memoryBytes = std::size_t{512} << 20;
  std::size_t portQueueBytes = std::size_t{32} << 20;
};

// Of one host, beside its port's own.
struct HostCounters {
  std::uint64_t notForwarded = 0;   // from it: to its own address
  std::uint64_t foreignSource = 0;  // from it: with an address that the description gives to another host
  std::uint64_t noMemory = 0;       // from it: the memory for frames under way was used up
  std::uint64_t nobodyThere = 0;    // to it: arrived while nobody was attached
  std::uint64_t queueFull = 0;      // to it: arrived, and not taken in time
  std::size_t queueBytes = 0, maxQueueBytes = 0;
};

class FabricSwitch final : private FrameSink {
 public:
  // ports[i] is that of host i.
  FabricSwitch(const Description& description, std::vector<std::unique_ptr<FabricPort>> ports,
               const SwitchLimits& limits, TimePoint start);
  FabricSwitch(const FabricSwitch&) = delete;
  FabricSwitch& operator=(const FabricSwitch&) = delete;

  // Sees every frame from now on; must live as long as poll() is called.
  void observe(FrameObserver& observer) { observer_ = &observer; }

  // One round: changes that are due, a burst from each port, frames that are due. True: a frame moved. `now` never goes
  // back.
  bool poll(TimePoint now);
  // When poll has something to do even if no frame comes in; a time that has passed: at once.
  TimePoint nextDue() const;
  // A host does not take what has arrived for it. Nothing tells when it can again: poll soon.
  bool blocked() const { return blocked_; }
  // Connections of ports.
  void service();
  void wakeOnFrames(bool wanted);

  std::size_t hosts() const { return ports_.size(); }
  const FabricPort& port(std::size_t host) const { return *ports_[host]; }
  const HostCounters& hostCounters(std::size_t host) const { return hostCounters_[host]; }
  const EdgeEmulator& edge(std::size_t from, std::size_t to) const { return edges_[from * ports_.size() + to]; }
  const FrameArena& arena() const { return arena_; }
  std::size_t framesUnderWay() const { return held_.size(); }
  // How long after their time frames were given to their hosts' queues: what the emulation adds by itself.
  const DurationHistogram& lateness() const { return lateness_; }

 private:
  void onFrame(std::span<const std::byte> frame) override;
  void offer(std::size_t to, std::span<const std::byte> bytes, Frame*& shared);
  void deliverDue();
  bool flush(std::size_t host);
  void applyChanges();

  std::vector<std::unique_ptr<FabricPort>> ports_;
  const std::size_t portQueueBytes_;
  const TimePoint start_;
  FrameArena arena_;
  std::vector<EdgeEmulator> edges_;  // hosts * hosts, as in the description
  Schedule schedule_;
  HeldFrames held_;
  MacTable macs_;
  std::vector<std::deque<Frame*>> outgoing_;  // by host: due, in the order of arrival
  std::vector<HostCounters> hostCounters_;
  DurationHistogram lateness_;
  FrameObserver* observer_ = nullptr;
  bool blocked_ = false;
  TimePoint now_;
  std::size_t source_ = 0;  // the host whose frames are being received
};

}  // namespace gloo_bypass::fabric
