#include "transport/core/congestion/swift.h"

#include <algorithm>
#include <cmath>

namespace gloo_bypass {
namespace {

constexpr double kInitialWindowDatagrams = 16;
constexpr double kMinWindowDatagrams = 2;
// No path that this controller is for holds more; it bounds the growth of a flow that never sees delay.
constexpr double kMaxWindowBytes = 256.0 * 1024 * 1024;
// Swift's beta and max_mdf (section 3.1).
constexpr double kDecreaseSlope = 0.8;
constexpr double kMaxDecrease = 0.5;
// Swift's flow-based scaling (section 3.1.2): full range at 4 datagrams and fewer, none at 256 and more.
constexpr Duration kFlowScalingRange = std::chrono::microseconds(50);
constexpr double kFlowScalingMinDatagrams = 4;
constexpr double kFlowScalingMaxDatagrams = 256;
// What a host may take before it looks at what has arrived: a thread that sleeps needs 30 to 60 us to wake up and to
// take a burst, at both ends. With less of it two ranks that sleep wait for each other's acknowledgements in turn.
constexpr Duration kMinHostDelay = std::chrono::microseconds(150);
// As BBR's allowance for acknowledgements that come late.
constexpr Duration kMaxHostDelay = std::chrono::milliseconds(1);
constexpr Duration kHostDelayHalvesEach = std::chrono::milliseconds(100);
// Hosts send and take datagrams in bursts: a segmented send has up to 64 KiB. On a slow link one burst alone takes
// longer than kMinHostDelay, and the link needs others to last until the host has run again. Three, as BBR has room for
// (draft-cardwell-iccrg-bbr-congestion-control-02, "BBR.offload_budget").
constexpr double kHostBurstBytes = 3 * 64.0 * 1024;
constexpr Duration kMaxBurstDelay = std::chrono::milliseconds(2);
// Timely's hyperactive increase: after this many rounds under the target, faster by one datagram a round for each
// further round, to at most kMaxHyperactive.
constexpr int kHyperactiveAfterRounds = 5;
constexpr int kMaxHyperactive = 32;
constexpr int kFloorRoundsUntilNewPath = 8;
// Swift's retransmission rule: this many timeouts in a row bring the window to its floor.
constexpr int kTimeoutsUntilFloor = 3;

double nanoseconds(Duration d) { return static_cast<double>(d.count()); }

}  // namespace

Swift::Swift(std::size_t mss)
    : mss_(static_cast<double>(mss)),
      window_(kInitialWindowDatagrams * static_cast<double>(mss)),
      hostDelay_(kMinHostDelay) {}

void Swift::onSent(TimePoint, std::size_t bytes, std::size_t inFlightBytes) {
  if (static_cast<double>(inFlightBytes + bytes) + mss_ > window_) windowLimited_ = true;
}

void Swift::onAck(const AckSample& measured) {
  AckSample sample = measured;
  if (sample.rtt > Duration{0}) sample.rtt = withoutReturnQueue(sample);
  if (sample.ackedBytes > 0) timeouts_ = 0;
  if (sample.smoothedRtt > Duration{0}) smoothedRtt_ = sample.smoothedRtt;
  if (sample.rtt > Duration{0}) updateMinimalRtt(sample);
  judgeDecrease(sample);
  updateRate(sample);
  if (sample.lostBytes > 0) {
    starting_ = false;
    if (mayDecrease(sample.now)) decrease(1 - kMaxDecrease, sample);
    before_.window = 0;  // a loss is no delay
  } else if (sample.rtt > Duration{0}) {
    const Duration target = targetDelay();
    if (sample.rtt <= target) {
      increase(sample.ackedBytes);
    } else {
      const double excess = nanoseconds(sample.rtt - target) / nanoseconds(sample.rtt);
      if (mayDecrease(sample.now)) decrease(std::max(1 - kDecreaseSlope * excess, 1 - kMaxDecrease), sample);
      roundsUnderTarget_ = 0;
    }
  }
  if (sample.ackedBytes > 0 && sample.priorDeliveredBytes >= roundEndDelivered_) endRound(sample);
}

void Swift::onTimeout(TimePoint now) {
  starting_ = false;
  roundsUnderTarget_ = 0;
  ++timeouts_;
  if (timeouts_ >= kTimeoutsUntilFloor) {
    window_ = kMinWindowDatagrams * mss_;
  } else {
    decrease(1 - kMaxDecrease, {.now = now});
  }
  before_.window = 0;
}

Duration Swift::targetDelay() const {
  static const double kAlpha = nanoseconds(kFlowScalingRange) /
                               (1 / std::sqrt(kFlowScalingMinDatagrams) - 1 / std::sqrt(kFlowScalingMaxDatagrams));
  static const double kBeta = -kAlpha / std::sqrt(kFlowScalingMaxDatagrams);
  const double scaling = std::clamp(kAlpha / std::sqrt(window_ / mss_) + kBeta, 0.0, nanoseconds(kFlowScalingRange));
  return minRtt_ + minRtt_ / 2 + std::max(hostDelay_, burstDelay()) + Duration(static_cast<Duration::rep>(scaling));
}

// What the peer's own data do on the way back is no reason to send less, as long as no more than three bursts are under
// way: with more, hosts that are busy send and receive by turns.
Duration Swift::withoutReturnQueue(const AckSample& sample) const {
  const Duration most = std::clamp(burstTime() - burstDelay(), Duration{0}, kMaxBurstDelay);
  const Duration least = std::min(sample.rtt, std::max(minRtt_, Duration{1}));
  return std::max(sample.rtt - std::min(sample.returnQueue, most), least);
}

// What three bursts of a host take at the flow's rate; zero before it is known.
Duration Swift::burstTime() const {
  const double rate = maxRate_.maximum();
  if (rate <= 0) return Duration{0};
  const auto seconds = std::chrono::duration<double>(std::min(kHostBurstBytes / rate, 1.0));
  return std::chrono::duration_cast<Duration>(seconds);
}

Duration Swift::burstDelay() const { return std::min(burstTime(), kMaxBurstDelay); }

void Swift::updateRate(const AckSample& sample) {
  const double rate = sample.deliveryRateBytesPerSecond;
  if (rate > 0 && (!sample.appLimited || rate >= maxRate_.maximum())) maxRate_.update(round_, rate);
}

// The session's minimum goes back to the handshake, when neither this flow nor, in a job that connects all ranks first,
// most others had filled a queue. After a change of path it is out of date.
void Swift::updateMinimalRtt(const AckSample& sample) {
  const Duration rtt = sample.rtt;
  if (minRtt_ == Duration{0} || rtt < minRtt_) minRtt_ = rtt;
  if (!pathChanged_ && sample.minRtt > Duration{0}) minRtt_ = std::min(minRtt_, sample.minRtt);
  if (smoothedRtt_ == Duration{0}) smoothedRtt_ = rtt;
  if (roundMinRtt_ == Duration{0} || rtt < roundMinRtt_) roundMinRtt_ = rtt;
}

// A path that became longer keeps the delay over the target however small the window: then the minimum is history.
void Swift::endRound(const AckSample& sample) {
  roundEndDelivered_ = sample.deliveredBytes;
  ++round_;
  const bool atFloor = window_ <= kMinWindowDatagrams * mss_;
  if (atFloor && roundMinRtt_ > targetDelay()) {
    if (++roundsAtFloor_ >= kFloorRoundsUntilNewPath) {
      minRtt_ = roundMinRtt_;
      pathChanged_ = true;
      roundsAtFloor_ = 0;
    }
  } else {
    roundsAtFloor_ = 0;
    if (windowLimited_ && roundMinRtt_ > Duration{0} && roundMinRtt_ <= targetDelay()) ++roundsUnderTarget_;
  }
  roundMinRtt_ = Duration{0};
  lastRoundLimited_ = windowLimited_;
  windowLimited_ = false;
}

void Swift::increase(std::size_t ackedBytes) {
  if (!windowLimited_ && !lastRoundLimited_) return;
  const double acked = static_cast<double>(ackedBytes);
  if (starting_) {
    window_ += acked;
  } else {
    const int datagrams = std::clamp(roundsUnderTarget_ - kHyperactiveAfterRounds + 1, 1, kMaxHyperactive);
    window_ += datagrams * mss_ * acked / window_;
  }
  window_ = std::min(window_, kMaxWindowBytes);
}

void Swift::decrease(double factor, const AckSample& sample) {
  if (before_.window == 0) before_ = {window_, starting_, roundsUnderTarget_};
  expectedDelay_ = Duration(static_cast<Duration::rep>(nanoseconds(sample.rtt) * factor));
  deliveredAtDecrease_ = sample.deliveredBytes;
  window_ = std::max(window_ * factor, kMinWindowDatagrams * mss_);
  lastDecrease_ = sample.now;
  starting_ = false;
}

// The first frame sent after a decrease that is back within the target tells whether the delay before it was a queue.
void Swift::judgeDecrease(const AckSample& sample) {
  forgetHostDelay(sample.now);
  if (before_.window == 0 || sample.ackedBytes == 0 || sample.rtt <= Duration{0}) return;
  const Duration target = targetDelay();
  if (sample.priorDeliveredBytes < deliveredAtDecrease_ || sample.rtt > target) return;
  if (expectedDelay_ > target + target / 4) {
    window_ = std::max(window_, before_.window);
    starting_ = before_.starting;
    roundsUnderTarget_ = before_.roundsUnderTarget;
    hostDelay_ = std::min(2 * hostDelay_, kMaxHostDelay);
    hostDelayHalvedAt_ = sample.now;
  }
  before_.window = 0;
}

void Swift::forgetHostDelay(TimePoint now) {
  if (hostDelay_ == kMinHostDelay || now - hostDelayHalvedAt_ < kHostDelayHalvesEach) return;
  hostDelay_ = std::max(hostDelay_ / 2, kMinHostDelay);
  hostDelayHalvedAt_ = now;
}

}  // namespace gloo_bypass
