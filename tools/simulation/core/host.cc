#include "tools/simulation/core/host.h"

#include <algorithm>
#include <utility>

namespace gloo_bypass::sim {

Host::Host(Simulation& simulation, const SessionConfig& config, std::uint64_t id, std::uint64_t entropy)
    : simulation_(simulation),
      id_(id),
      bufferDatagrams_(config.losslessLink ? kRingDatagrams : kSocketBufferDatagrams),
      session_(config, id, entropy) {}

Host::Host(Simulation& simulation, const SessionConfig& config, std::uint64_t id, std::uint64_t entropy, Host& lead)
    : simulation_(simulation),
      id_(id),
      bufferDatagrams_(lead.bufferDatagrams_),
      session_(config, id, entropy, &lead.session_),
      lead_(&lead) {
  lead.rails_.push_back(this);
}

void Host::operate(const std::function<void(Session&, TimePoint)>& operation) {
  if (vanished_) return;
  if (stopped_) {
    deferred_.push_back(operation);
    return;
  }
  operation(session_, simulation_.now());
  pump();
}

void Host::connect(const Host& peer, std::size_t maxDatagramBytes) {
  // By value: a stopped host does it later.
  operate([id = peer.id(), maxDatagramBytes](Session& session, TimePoint now) {
    session.connect(now, id, maxDatagramBytes);
  });
}

void Host::resume() {
  stopped_ = false;
  for (const std::vector<std::byte>& datagram : std::exchange(socketBuffer_, {})) {
    take(simulation_.now(), datagram);
  }
  if (session_.pollTimeout() <= simulation_.now()) session_.handleTimeout(simulation_.now());
  pump();
  for (const auto& operation : std::exchange(deferred_, {})) operate(operation);
}

TimePoint Host::nextWake() const {
  if (stopped_ || vanished_) return kNever;
  // While the link is full, the session keeps asking to be polled for the datagram that it took back.
  return refusedUntil_ != kNever ? refusedUntil_ : session_.pollTimeout();
}

void Host::wake(TimePoint now) {
  if (refusedUntil_ <= now) refusedUntil_ = kNever;
  if (session_.pollTimeout() <= now) session_.handleTimeout(now);
  pump();
}

void Host::onDatagram(TimePoint now, std::span<const std::byte> datagram) {
  if (vanished_ || isGone()) return;
  if (stopped_) {
    if (socketBuffer_.size() < bufferDatagrams_) socketBuffer_.emplace_back(datagram.begin(), datagram.end());
    return;
  }
  take(now, datagram);
  pump();
}

void Host::take(TimePoint now, std::span<const std::byte> datagram) {
  if (filter_ != nullptr) datagram = filter_->arriving(datagram);
  if (!datagram.empty()) session_.handleDatagram(now, datagram);
}

void Host::pump() {
  if (lead_ != nullptr) return lead_->pump();  // what one does may be for the others
  if (pumping_) return;                        // called from the observer: the loop below goes on with what it did
  pumping_ = true;
  for (bool any = true; any;) {
    any = pumpEvents() | pumpDatagrams();
    for (Host* rail : rails_) any = rail->pumpEvents() | rail->pumpDatagrams() | any;
  }
  maxMemoryBytes_ = std::max(maxMemoryBytes_, session_.memoryBytes());
  pumping_ = false;
  simulation_.reschedule(*this);
  for (Host* rail : rails_) simulation_.reschedule(*rail);
}

bool Host::pumpEvents() {
  bool any = false;
  SessionEvent event;
  while (session_.pollEvent(&event)) {
    any = true;
    if (lead_ != nullptr && session_.state() == SessionState::kFailed) {
      lead_->session_.fail(session_.error(), /*tellPeer=*/true);  // parts of its messages are lost
    }
    if (observer_) observer_(event);
  }
  return any;
}

bool Host::pumpDatagrams() {
  if (out_ == nullptr || refusedUntil_ != kNever) return false;
  bool any = false;
  const TimePoint now = simulation_.now();
  SessionDatagram datagram;
  while (session_.pollTransmit(now, &datagram)) {
    if (!send(now, datagram)) {
      session_.undoTransmit();
      refusedUntil_ = out_->roomAt();
      break;
    }
    any = true;
  }
  return any;
}

bool Host::send(TimePoint now, const SessionDatagram& datagram) {
  if (filter_ == nullptr) return out_->send(now, *peer_, datagram.header, datagram.payload);
  const std::span<const std::byte> bytes = filter_->leaving(datagram.header, datagram.payload);
  return bytes.empty() || out_->send(now, *peer_, bytes, {});
}

}  // namespace gloo_bypass::sim
