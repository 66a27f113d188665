#include "tests/sim/link.h"

#include <fmt/format.h>

#include <algorithm>

namespace gloo_bypass::sim {

std::string LinkModel::describe() const {
  return fmt::format(
      "rate {:.3g} bit/s, delay {} us, jitter {} us, loss {:.3g} (burst {:.3g}), duplication {:.3g}, reordering {:.3g} by {} us, "
      "corruption {:.3g}, queue {} B{}",
      bytesPerSecond * 8, delay.count() / 1000, jitter.count() / 1000, loss, burstEnter, duplication, reordering,
      reorderDelay.count() / 1000, corruption, queueBytes, backPressure ? ", back-pressure" : "");
}

Link::Link(Simulation& simulation, const LinkModel& model, std::uint64_t seed)
    : simulation_(simulation), model_(model), random_(seed) {}

std::size_t Link::queuedBytes(TimePoint now) const {
  if (model_.bytesPerSecond <= 0 || busyUntil_ <= now) return 0;
  return static_cast<std::size_t>(static_cast<double>((busyUntil_ - now).count()) * 1e-9 * model_.bytesPerSecond);
}

bool Link::send(TimePoint now, DatagramSink& sink, std::span<const std::byte> header,
                std::span<const std::byte> payload) {
  const std::size_t bytes = header.size() + payload.size() + kFrameOverheadBytes;
  ++counters_.offered;
  const std::size_t queued = queuedBytes(now);
  const bool full = model_.queueBytes > 0 && queued > 0 && queued + bytes > model_.queueBytes;
  if (full && model_.backPressure) {
    ++counters_.refused;
    roomAt_ = now + std::max(serialisation(queued + bytes - model_.queueBytes), Duration(1));
    return false;
  }
  if (loses()) {
    ++counters_.lostRandomly;
    return true;
  }
  if (full) {
    ++counters_.lostInQueue;
    return true;
  }
  const TimePoint start = std::max(busyUntil_, now);
  counters_.totalQueueing += start - now;
  counters_.maxQueueBytes = std::max(counters_.maxQueueBytes, queued + bytes);
  busyUntil_ = start + serialisation(bytes);
  TimePoint arrival = busyUntil_ + model_.delay;
  if (model_.jitter > Duration{0}) {
    arrival += Duration(static_cast<Duration::rep>(random_.uniform() * static_cast<double>(model_.jitter.count())));
  }
  lastArrival_ = arrival = std::max(arrival, lastArrival_);
  if (random_.chance(model_.reordering)) {
    ++counters_.reordered;
    arrival += Duration(static_cast<Duration::rep>(random_.uniform() * static_cast<double>(model_.reorderDelay.count())));
  }
  launch(arrival, sink, header, payload);
  if (random_.chance(model_.duplication)) {
    ++counters_.duplicated;
    launch(arrival + model_.reorderDelay / 2, sink, header, payload);
  }
  return true;
}

void Link::wake(TimePoint now) {
  while (!flights_.empty() && flights_.top().arrival <= now) {
    const Flight flight = flights_.top();
    flights_.pop();
    ++counters_.delivered;
    counters_.deliveredBytes += buffers_[flight.buffer].size();
    // The sink may send on this link, which may grow buffers_: the datagram moves out for the call.
    std::vector<std::byte> datagram = std::move(buffers_[flight.buffer]);
    flight.sink->onDatagram(now, datagram);
    buffers_[flight.buffer] = std::move(datagram);
    freeBuffers_.push_back(flight.buffer);
  }
}

bool Link::loses() {
  if (model_.burstEnter > 0) {
    inBurst_ = inBurst_ ? !random_.chance(model_.burstLeave) : random_.chance(model_.burstEnter);
    if (inBurst_ && random_.chance(model_.burstLoss)) return true;
  }
  return random_.chance(model_.loss);
}

Duration Link::serialisation(std::size_t bytes) const {
  if (model_.bytesPerSecond <= 0) return Duration{0};
  return Duration(static_cast<Duration::rep>(static_cast<double>(bytes) * 1e9 / model_.bytesPerSecond));
}

void Link::launch(TimePoint arrival, DatagramSink& sink, std::span<const std::byte> header,
                  std::span<const std::byte> payload) {
  if (freeBuffers_.empty()) {
    freeBuffers_.push_back(static_cast<std::uint32_t>(buffers_.size()));
    buffers_.emplace_back();
  }
  const std::uint32_t buffer = freeBuffers_.back();
  freeBuffers_.pop_back();
  std::vector<std::byte>& datagram = buffers_[buffer];
  datagram.assign(header.begin(), header.end());
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  if (random_.chance(model_.corruption)) corrupt(datagram);
  flights_.push({arrival, order_++, &sink, buffer});
  simulation_.reschedule(*this);
}

void Link::corrupt(std::vector<std::byte>& datagram) {
  ++counters_.corrupted;
  if (datagram.empty()) return;
  if (random_.chance(0.2)) {
    datagram.resize(random_.below(datagram.size()));
    return;
  }
  const std::uint64_t flips = 1 + random_.below(3);
  for (std::uint64_t i = 0; i < flips; ++i) {
    datagram[random_.below(datagram.size())] ^= std::byte{1} << random_.below(8);
  }
}

}  // namespace gloo_bypass::sim
