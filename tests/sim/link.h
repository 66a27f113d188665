// One direction of a path: a queue with a limit, a serialising rate, a delay, and everything that can go wrong with a
// datagram. Several hosts may share one link (a bottleneck).
//
//   send -> [random and burst loss] -> queue (limit, drop-tail) -> rate -> delay + jitter -> [duplicate, reorder, corrupt] -> sink
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/random.h"
#include "tests/sim/simulation.h"

namespace gloo_bypass::sim {

class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  virtual void onDatagram(TimePoint now, std::span<const std::byte> datagram) = 0;
};

struct LinkModel {
  double bytesPerSecond = 0;  // of frames; 0: no limit
  Duration delay = std::chrono::microseconds(5);
  Duration jitter{0};         // uniform, added to the delay; keeps the order
  double loss = 0;
  // Bursts (Gilbert-Elliott): each datagram may enter the bad state, loses in it with `burstLoss`, may leave it.
  double burstEnter = 0, burstLeave = 0.2, burstLoss = 0.8;
  double duplication = 0;
  double reordering = 0;      // such datagrams take up to reorderDelay longer and are overtaken
  Duration reorderDelay{0};
  double corruption = 0;      // 1 to 3 flipped bits, or a cut tail
  std::size_t queueBytes = 0; // 0: no limit
  bool backPressure = false;  // a full queue refuses (memory link) where otherwise it drops

  std::string describe() const;
};

struct LinkCounters {
  std::uint64_t offered = 0, delivered = 0, refused = 0;
  std::uint64_t lostRandomly = 0, lostInQueue = 0, duplicated = 0, reordered = 0, corrupted = 0;
  std::uint64_t deliveredBytes = 0;
  std::size_t maxQueueBytes = 0;
  Duration totalQueueing{0};  // sum over the datagrams that passed the queue
};

class Link final : public Actor {
 public:
  // What UDP, IPv4, Ethernet, preamble and gap add to a datagram on the wire.
  static constexpr std::size_t kFrameOverheadBytes = 8 + 20 + 18 + 20;

  Link(Simulation& simulation, const LinkModel& model, std::uint64_t seed);

  // False: refused (only with backPressure); try again at roomAt(). Else the link has it, or has lost it.
  bool send(TimePoint now, DatagramSink& sink, std::span<const std::byte> header, std::span<const std::byte> payload);
  TimePoint roomAt() const { return roomAt_; }
  // From now on; what is under way stays under way.
  void setModel(const LinkModel& model) { model_ = model; }
  const LinkModel& model() const { return model_; }
  const LinkCounters& counters() const { return counters_; }
  std::size_t queuedBytes(TimePoint now) const;

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

  bool loses();
  Duration serialisation(std::size_t bytes) const;
  void launch(TimePoint arrival, DatagramSink& sink, std::span<const std::byte> header,
              std::span<const std::byte> payload);
  void corrupt(std::vector<std::byte>& datagram);

  Simulation& simulation_;
  LinkModel model_;
  Random random_;
  bool inBurst_ = false;
  TimePoint busyUntil_ = Simulation::kStart;
  TimePoint lastArrival_ = Simulation::kStart;
  TimePoint roomAt_ = Simulation::kStart;
  std::uint64_t order_ = 0;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flights_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::uint32_t> freeBuffers_;
  LinkCounters counters_;
};

}  // namespace gloo_bypass::sim
