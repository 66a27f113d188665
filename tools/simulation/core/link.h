// One direction of a path between simulated hosts: an edge of the emulated fabric (tools/fabric/core/edge_emulator.h),
// which says what happens to each datagram and when it arrives, and the datagrams under way. Several hosts may share
// one link (a bottleneck).
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "tools/fabric/core/edge_emulator.h"
#include "tools/simulation/core/simulation.h"

namespace gloo_bypass::sim {

class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  virtual void onDatagram(TimePoint now, std::span<const std::byte> datagram) = 0;
};

// What is counted for a datagram beside its own bytes: UDP, IPv4 and Ethernet header as the fabric's switch counts
// them, or also checksum, preamble and gap.
inline constexpr std::size_t kLayer2OverheadBytes = 8 + 20 + 14;
inline constexpr std::size_t kWireOverheadBytes = kLayer2OverheadBytes + 4 + 20;

struct LinkModel : fabric::EdgeModel {
  bool backPressure = false;  // a full queue refuses (memory link) where otherwise it drops
  std::size_t frameOverheadBytes = kWireOverheadBytes;

  LinkModel() { delay = std::chrono::microseconds(5); }
  double bytesPerSecond() const { return static_cast<double>(rateBitsPerSecond) / 8; }
  void setBytesPerSecond(double rate) { rateBitsPerSecond = static_cast<std::uint64_t>(rate * 8); }
  std::string describe() const;
};

struct LinkCounters {
  std::uint64_t offered = 0;  // by hosts, refused ones included
  std::uint64_t refused = 0;
  std::uint64_t delivered = 0;  // has arrived
  Duration totalQueueing{0};    // sum over the datagrams that passed the queue
};

class Link final : public Actor {
 public:
  Link(Simulation& simulation, const LinkModel& model, std::uint64_t seed);

  // False: refused (only with backPressure); try again at roomAt(). Else the link has it, or has lost it.
  bool send(TimePoint now, DatagramSink& sink, std::span<const std::byte> header, std::span<const std::byte> payload);
  TimePoint roomAt() const { return roomAt_; }
  // From now on; what is under way stays under way.
  void setModel(const LinkModel& model);
  const LinkModel& model() const { return model_; }
  LinkCounters counters() const;
  // Refused datagrams are not among them.
  const fabric::EdgeCounters& edgeCounters() const { return edge_.counters(); }

  TimePoint nextWake() const override { return flights_.empty() ? kNever : flights_.top().arrival; }
  void wake(TimePoint now) override;

 private:
  struct Flight {
    TimePoint arrival;
    std::uint64_t order;
    DatagramSink* sink;
    std::uint32_t buffer;
    bool operator>(const Flight& other) const {
      return arrival != other.arrival ? arrival > other.arrival : order > other.order;
    }
  };

  void launch(const fabric::Delivery& delivery, DatagramSink& sink, std::span<const std::byte> header,
              std::span<const std::byte> payload);

  Simulation& simulation_;
  LinkModel model_;
  fabric::EdgeEmulator edge_;
  TimePoint roomAt_ = Simulation::kStart;
  std::uint64_t order_ = 0;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flights_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::uint32_t> freeBuffers_;
  std::uint64_t refused_ = 0, arrived_ = 0;
};

}  // namespace gloo_bypass::sim
