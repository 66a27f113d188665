#include "tools/simulation/core/link.h"

namespace gloo_bypass::sim {

std::string LinkModel::describe() const { return fabric::describe(*this) + (backPressure ? ", back-pressure" : ""); }

Link::Link(Simulation& simulation, const LinkModel& model, std::uint64_t seed)
    : simulation_(simulation), model_(model), edge_(model, seed) {}

void Link::setModel(const LinkModel& model) {
  model_ = model;
  edge_.setModel(model);
}

LinkCounters Link::counters() const {
  const fabric::EdgeCounters& edge = edge_.counters();
  return {edge.offered + refused_, refused_, arrived_, edge.totalQueueing};
}

bool Link::send(TimePoint now, DatagramSink& sink, std::span<const std::byte> header,
                std::span<const std::byte> payload) {
  const std::size_t bytes = header.size() + payload.size() + model_.frameOverheadBytes;
  if (model_.backPressure) {
    const TimePoint room = edge_.roomAt(now, bytes);
    if (room > now) {
      ++refused_;
      roomAt_ = room;
      return false;
    }
  }
  const fabric::Verdict verdict = edge_.offer(now, bytes);
  for (const fabric::Delivery& delivery : verdict.delivered()) launch(delivery, sink, header, payload);
  return true;
}

void Link::wake(TimePoint now) {
  while (!flights_.empty() && flights_.top().arrival <= now) {
    const Flight flight = flights_.top();
    flights_.pop();
    ++arrived_;
    // The sink may send on this link, which may grow buffers_: the datagram moves out for the call.
    std::vector<std::byte> datagram = std::move(buffers_[flight.buffer]);
    flight.sink->onDatagram(now, datagram);
    buffers_[flight.buffer] = std::move(datagram);
    freeBuffers_.push_back(flight.buffer);
  }
}

void Link::launch(const fabric::Delivery& delivery, DatagramSink& sink, std::span<const std::byte> header,
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
  if (delivery.corrupt) datagram.resize(fabric::corruptFrame(datagram, delivery.corruptionSeed));
  flights_.push({delivery.arrival, order_++, &sink, buffer});
  simulation_.reschedule(*this);
}

}  // namespace gloo_bypass::sim
