#include "tools/simulation/core/ring_rank.h"

#include <utility>

namespace gloo_bypass::sim {

RingRank::RingRank(const RingSchedule& schedule, std::size_t rank, Host& out, Host& in,
                   std::span<const std::byte> source, std::span<std::byte> sink)
    : schedule_(schedule), rank_(rank), out_(out), in_(in), source_(source), sink_(sink) {
  for (Host* const host : {&out_, &in_}) {
    host->setObserver([this, host](const SessionEvent& event) { onEvent(event, *host); });
  }
}

void RingRank::start(std::function<void()> onDone) {
  onDone_ = std::move(onDone);
  running_ = true;
  half_ = iteration_ = 0;
  sendsUpTo_.fill(sendsPosted_);
  receivesUpTo_.fill(receivesPosted_);
  advance();
}

void RingRank::onEvent(const SessionEvent& event, const Host& host) {
  switch (event.type) {
    case SessionEvent::Type::kSendComplete:
      ++sent_;
      break;
    case SessionEvent::Type::kReceiveComplete:
      ++received_;
      receivedBytes_ += event.length;
      break;
    case SessionEvent::Type::kStateChange:
      if (event.state == SessionState::kFailed) noteFailure(host.session().error());
      return;
    case SessionEvent::Type::kMessageAnnounced:
      return;
  }
  if (running_) advance();
}

bool RingRank::mayRun() const {
  const auto place = static_cast<std::size_t>(iteration_ % RingSchedule::kAhead);
  return iteration_ < RingSchedule::kAhead || (sent_ >= sendsUpTo_[place] && received_ >= receivesUpTo_[place]);
}

void RingRank::advance() {
  if (advancing_) return;  // an operation completed at once: the loop below goes on with it
  advancing_ = true;
  while (running_ && error_.empty() && mayRun()) {
    const auto place = static_cast<std::size_t>(iteration_ % RingSchedule::kAhead);
    if (iteration_ < schedule_.iterations()) post();
    sendsUpTo_[place] = sendsPosted_;
    receivesUpTo_[place] = receivesPosted_;
    if (++iteration_ < schedule_.iterations() + RingSchedule::kAhead) continue;
    iteration_ = 0;
    if (++half_ == RingSchedule::kHalves) running_ = false;
  }
  advancing_ = false;
  // Last: it may start the next all-reduce.
  if (!running_ && onDone_) std::exchange(onDone_, nullptr)();
}

void RingRank::post() {
  const std::size_t receiveBytes = schedule_.receiveBytes(rank_, half_, iteration_);
  const std::size_t sendBytes = schedule_.sendBytes(rank_, half_, iteration_);
  if (receiveBytes > 0) {
    const auto token = static_cast<OperationToken>(receivesPosted_++);
    in_.operate([this, token, receiveBytes](Session& session, TimePoint) {
      noteFailure(session.postReceive({token, kKey, sink_.data(), receiveBytes, false}));
    });
  }
  if (sendBytes > 0) {
    const auto token = static_cast<OperationToken>(sendsPosted_++);
    out_.operate([this, token, sendBytes](Session& session, TimePoint) {
      noteFailure(session.postSend({token, kKey, source_.data(), sendBytes, 0}));
    });
  }
}

void RingRank::noteFailure(const Status& status) {
  if (!status.ok() && error_.empty()) error_ = status.error().message;
}

}  // namespace gloo_bypass::sim
