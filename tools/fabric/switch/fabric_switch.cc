#include "tools/fabric/switch/fabric_switch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/base/check.h"

namespace gloo_bypass::fabric {
namespace {

// Of one port in one round: the others wait no longer than that.
constexpr std::size_t kFramesARound = 64;
constexpr std::size_t kTransmitBurst = 32;

}  // namespace

FabricSwitch::FabricSwitch(const Description& description, std::vector<std::unique_ptr<FabricPort>> ports,
                           const SwitchLimits& limits, TimePoint start)
    : ports_(std::move(ports)),
      portQueueBytes_(limits.portQueueBytes),
      start_(start),
      arena_(limits.memoryBytes),
      schedule_(description),
      held_(ports_.size() * ports_.size()),
      outgoing_(ports_.size()),
      hostCounters_(ports_.size()),
      now_(start) {
  GLOO_BYPASS_CHECK(ports_.size() == description.hosts.size());
  edges_.reserve(ports_.size() * ports_.size());
  for (std::size_t from = 0; from < ports_.size(); ++from) {
    for (std::size_t to = 0; to < ports_.size(); ++to) edges_.push_back(description.makeEdge(from, to));
    if (const auto& mac = description.hosts[from].mac) macs_.fix(*mac, from);
  }
}

bool FabricSwitch::poll(TimePoint now) {
  now_ = now;
  applyChanges();
  if (observer_ != nullptr) observer_->onRound(now);
  bool moved = false;
  for (source_ = 0; source_ < ports_.size(); ++source_) {
    if (ports_[source_]->receive(*this, kFramesARound) > 0) moved = true;
  }
  deliverDue();
  blocked_ = false;
  for (std::size_t host = 0; host < ports_.size(); ++host) {
    if (outgoing_[host].empty()) continue;
    if (flush(host)) moved = true;
    if (!outgoing_[host].empty()) blocked_ = true;
  }
  return moved;
}

TimePoint FabricSwitch::nextDue() const {
  TimePoint next = held_.nextDue();
  if (const auto change = schedule_.next()) next = std::min(next, start_ + *change);
  return next;
}

void FabricSwitch::applyChanges() {
  const auto next = schedule_.next();
  if (!next || start_ + *next > now_) return;
  for (const EdgeUpdate& update : schedule_.due(now_ - start_)) {
    edges_[update.edge.from * ports_.size() + update.edge.to].setModel(update.model);
  }
}

void FabricSwitch::service() {
  for (const auto& port : ports_) port->service();
}

void FabricSwitch::wakeOnFrames(bool wanted) {
  for (const auto& port : ports_) port->wakeOnFrames(wanted);
}

void FabricSwitch::onFrame(std::span<const std::byte> frame) {
  if (observer_ != nullptr) observer_->onFrame(source_, frame, now_);
  // Copied first: in a memif ring the sender can still write to the frame.
  dpdk::MacAddress destination, sender;
  std::memcpy(destination.data(), frame.data(), destination.size());
  std::memcpy(sender.data(), frame.data() + destination.size(), sender.size());
  if (!macs_.learn(sender, source_)) {
    ++hostCounters_[source_].foreignSource;
    return;
  }
  Frame* shared = nullptr;
  const auto known = isGroupAddress(destination) ? std::nullopt : macs_.find(destination);
  if (known && *known == source_) {
    ++hostCounters_[source_].notForwarded;
  } else if (known) {
    offer(*known, frame, shared);
  } else {
    for (std::size_t to = 0; to < ports_.size(); ++to) {
      if (to != source_) offer(to, frame, shared);
    }
  }
  if (shared != nullptr) arena_.release(shared);
}

// `shared` is the frame's copy that deliveries refer to, made when the first one needs it.
void FabricSwitch::offer(std::size_t to, std::span<const std::byte> bytes, Frame*& shared) {
  const std::size_t lane = source_ * ports_.size() + to;
  const Verdict verdict = edges_[lane].offer(now_, bytes.size());
  for (const Delivery& delivery : verdict.delivered()) {
    Frame* frame = nullptr;
    if (delivery.corrupt) {
      frame = arena_.copy(bytes);
      if (frame != nullptr) {
        frame->length = static_cast<std::uint32_t>(
            corruptFrame(frame->bytes(), delivery.corruptionSeed, dpdk::kEthernetHeaderBytes));
      }
    } else {
      if (shared == nullptr) shared = arena_.copy(bytes);
      frame = shared;
      if (frame != nullptr) FrameArena::retain(frame);
    }
    if (frame == nullptr) {
      ++hostCounters_[source_].noMemory;
      continue;
    }
    held_.push(lane, delivery.arrival, frame);
  }
}

void FabricSwitch::deliverDue() {
  while (const auto due = held_.pop(now_)) {
    const std::size_t host = due->lane % ports_.size();
    HostCounters& counters = hostCounters_[host];
    const std::size_t bytes = due->frame->length;
    lateness_.add(now_ - due->due);
    if (!ports_[host]->connected()) {
      ++counters.nobodyThere;
      arena_.release(due->frame);
    } else if (counters.queueBytes + bytes > portQueueBytes_) {
      ++counters.queueFull;
      arena_.release(due->frame);
    } else {
      counters.queueBytes += bytes;
      counters.maxQueueBytes = std::max(counters.maxQueueBytes, counters.queueBytes);
      outgoing_[host].push_back(due->frame);
    }
  }
}

bool FabricSwitch::flush(std::size_t host) {
  std::deque<Frame*>& queue = outgoing_[host];
  HostCounters& counters = hostCounters_[host];
  bool moved = false;
  while (!queue.empty()) {
    std::array<Frame*, kTransmitBurst> burst;
    const std::size_t count = std::min(queue.size(), burst.size());
    std::copy_n(queue.begin(), count, burst.begin());
    const bool attached = ports_[host]->connected();
    std::size_t taken = attached ? ports_[host]->transmit({burst.data(), count}) : count;
    if (!attached) counters.nobodyThere += count;
    for (std::size_t i = 0; i < taken; ++i) {
      counters.queueBytes -= burst[i]->length;
      arena_.release(burst[i]);
      queue.pop_front();
    }
    moved = moved || taken > 0;
    if (taken < count) break;
  }
  return moved;
}

}  // namespace gloo_bypass::fabric
