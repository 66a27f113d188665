#include "tests/sim/flow.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gloo_bypass::sim {
namespace {

constexpr std::uint64_t kLossDistance = 3;
constexpr Duration kTimeout = std::chrono::seconds(1);
constexpr Duration kOfferInterval = std::chrono::milliseconds(1);

}  // namespace

Flow::Flow(Simulation& simulation, Link& link, Duration ackDelay, std::unique_ptr<CongestionController> controller)
    : simulation_(simulation),
      link_(link),
      ackDelay_(ackDelay),
      controller_(std::move(controller)),
      deliveredTime_(simulation.now()),
      firstSentTime_(simulation.now()),
      lastProgress_(simulation.now()) {}

bool Flow::offered(TimePoint now) const {
  if (offeredRate_ <= 0) return true;
  const double seconds = static_cast<double>((now - Simulation::kStart).count()) * 1e-9;
  return static_cast<double>(offeredBytes_) < offeredRate_ * seconds;
}

void Flow::send() {
  static const std::vector<std::byte> payload(kDatagramBytes - sizeof(std::uint64_t));
  const TimePoint now = simulation_.now();
  pacer_.setRate(controller_->pacingRate(), kDatagramBytes);
  while (inFlightBytes_ + kDatagramBytes <= controller_->windowBytes() && pacer_.mayReleaseAt(now)) {
    if (!offered(now)) {
      appLimited_ = true;
      nextOffer_ = now + kOfferInterval;
      break;
    }
    if (inFlightBytes_ == 0) firstSentTime_ = deliveredTime_ = now;
    const std::uint64_t sequence = first_ + sent_.size();
    sent_.push_back({now, deliveredTime_, firstSentTime_, deliveredBytes_, false, appLimited_});
    appLimited_ = false;
    controller_->onSent(now, kDatagramBytes, inFlightBytes_);
    inFlightBytes_ += kDatagramBytes;
    offeredBytes_ += kDatagramBytes;
    pacer_.onSent(now, kDatagramBytes);
    link_.send(now, *this, std::as_bytes(std::span(&sequence, 1)), payload);
  }
  simulation_.reschedule(*this);
}

TimePoint Flow::nextWake() const {
  TimePoint wake = acks_.empty() ? kNever : acks_.front().time;
  if (inFlightBytes_ > 0) wake = std::min(wake, lastProgress_ + kTimeout);
  if (inFlightBytes_ + kDatagramBytes <= controller_->windowBytes()) {
    wake = std::min(wake, std::max(pacer_.wakeTime(), nextOffer_));
  }
  return wake;
}

void Flow::wake(TimePoint now) {
  while (!acks_.empty() && acks_.front().time <= now) {
    const std::uint64_t sequence = acks_.front().sequence;
    acks_.pop_front();
    handleAck(now, sequence);
  }
  if (inFlightBytes_ > 0 && now >= lastProgress_ + kTimeout) {
    lastProgress_ = now;
    first_ += sent_.size();
    sent_.clear();
    inFlightBytes_ = 0;
    controller_->onTimeout(now);
  }
  send();
}

void Flow::onDatagram(TimePoint now, std::span<const std::byte> datagram) {
  Ack ack{now + ackDelay_, 0};
  std::memcpy(&ack.sequence, datagram.data(), sizeof ack.sequence);
  acks_.push_back(ack);
  simulation_.reschedule(*this);
}

void Flow::handleAck(TimePoint now, std::uint64_t sequence) {
  if (sequence < first_ || sent_[sequence - first_].acked) return;
  Sent& packet = sent_[sequence - first_];
  packet.acked = true;
  AckSample sample;
  sample.now = now;
  sample.ackedBytes = kDatagramBytes;
  sample.rtt = now - packet.time;
  sample.priorDeliveredBytes = packet.deliveredBytes;
  sample.appLimited = packet.appLimited;
  deliveredBytes_ += kDatagramBytes;
  sample.deliveredBytes = deliveredBytes_;
  const Duration interval = std::max(packet.time - packet.firstSentTime, now - packet.deliveredTime);
  if (interval > Duration{0}) {
    sample.deliveryRateBytesPerSecond =
        static_cast<double>(deliveredBytes_ - packet.deliveredBytes) * 1e9 / static_cast<double>(interval.count());
  }
  deliveredTime_ = lastProgress_ = now;
  firstSentTime_ = packet.time;
  while (!sent_.empty() && (sent_.front().acked || first_ + kLossDistance < sequence)) {
    if (!sent_.front().acked) sample.lostBytes += kDatagramBytes;
    sent_.pop_front();
    ++first_;
  }
  inFlightBytes_ =
      kDatagramBytes *
      static_cast<std::size_t>(std::count_if(
          sent_.begin(),
          sent_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(sent_.size(), kLossDistance + 2)),
          [](const Sent& s) { return !s.acked; }));
  if (sent_.size() > kLossDistance + 2) inFlightBytes_ += kDatagramBytes * (sent_.size() - kLossDistance - 2);
  sample.inFlightBytes = inFlightBytes_;
  if (minRtt_ == Duration{0} || sample.rtt < minRtt_) minRtt_ = sample.rtt;
  smoothedRtt_ = smoothedRtt_ == Duration{0} ? sample.rtt : (smoothedRtt_ * 7 + sample.rtt) / 8;
  sample.minRtt = minRtt_;
  sample.smoothedRtt = smoothedRtt_;
  controller_->onAck(sample);
}

}  // namespace gloo_bypass::sim
