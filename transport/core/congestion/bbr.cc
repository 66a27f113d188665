#include "transport/core/congestion/bbr.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gloo_bypass {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// 4 ln 2 fills the pipe as fast as doubling does ([BBR2] "BBRStartupPacingGain"); the window follows with 2.
constexpr double kStartupPacingGain = 2.77;
constexpr double kStartupWindowGain = 2.0;
constexpr double kDrainPacingGain = 0.5;
constexpr double kProbeWindowGain = 2.0;
constexpr double kProbeRttWindowGain = 0.5;
constexpr int kPhases = 8;
constexpr double kPhaseGains[kPhases] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
// "Pacing slightly below the estimate" ([BBR2] BBRPacingMarginPercent) lets a queue that formed drain.
constexpr double kPacingMargin = 0.99;
// The network is a leased or private one: 32 datagrams, where a TCP on the Internet starts with 10 (RFC 6928).
constexpr double kInitialWindowDatagrams = 32;
constexpr double kMinWindowDatagrams = 4;
// Acknowledgements come late and in clumps: the window has this much on top of gain x BDP ([BBR1] "send quantum" x 3).
constexpr double kAllowanceDatagrams = 8;
constexpr double kAllowanceSeconds = 0.001;
constexpr double kMaxAggregationSeconds = 0.1;
constexpr double kFullPipeGrowth = 1.25;
constexpr int kFullPipeRounds = 3;
constexpr double kLossThreshold = 0.08;
constexpr double kLossMinDatagrams = 8;
constexpr double kLossReduction = 0.7;  // [BBR2] BBRBeta
// If a round's smallest round trip exceeds the minimum by this factor, it stood in a queue: only then is loss
// congestion.
constexpr double kQueuedRttFactor = 1.05;
constexpr double kMaxNoiseLoss = 0.4;
constexpr Duration kMinRttExpiry = std::chrono::seconds(5);
constexpr Duration kProbeRttTime = std::chrono::milliseconds(200);

double seconds(Duration d) { return static_cast<double>(d.count()) * 1e-9; }

}  // namespace

Bbr::Bbr(std::size_t mss, std::uint64_t entropy)
    : mss_(static_cast<double>(mss)),
      entropy_(entropy),
      pacingGain_(kStartupPacingGain),
      windowGain_(kStartupWindowGain),
      window_(kInitialWindowDatagrams * static_cast<double>(mss)),
      pacingRate_(kInfinity),
      bandwidthLow_(kInfinity) {}

void Bbr::onSent(TimePoint, std::size_t bytes, std::size_t inFlightBytes) {
  if (inFlightBytes <= bytes) idleRestart_ = true;
}

void Bbr::onAck(const AckSample& sample) {
  const bool roundStart = updateRound(sample);
  updateLoss(roundStart, sample);
  updateBandwidth(sample);
  updateAggregation(sample);
  checkFullPipe(roundStart, sample);
  checkDrain(sample);
  updateCycle(sample);
  updateMinRtt(sample);
  checkProbeRtt(roundStart, sample);
  updateControl(sample);
  if (sample.ackedBytes > 0 && sample.rtt > Duration{0}) idleRestart_ = false;
}

void Bbr::onTimeout(TimePoint) {
  if (windowBeforeTimeout_ == 0) {
    windowBeforeTimeout_ = window_;
    timeoutRound_ = round_;
  }
  window_ = minWindow();
}

std::size_t Bbr::windowBytes() const {
  double window = window_;
  if (state_ == State::kProbeRtt) window = std::min(window, bdpBytes(kProbeRttWindowGain));
  return static_cast<std::size_t>(std::max(window, minWindow()));
}

double Bbr::bandwidth() const { return std::min(maxBandwidth_.maximum(), bandwidthLow_); }

// [BBR1] "Round-Trip Counter".
bool Bbr::updateRound(const AckSample& sample) {
  if (sample.ackedBytes == 0 || sample.priorDeliveredBytes < roundEndDelivered_) return false;
  roundEndDelivered_ = sample.deliveredBytes;
  ++round_;
  return true;
}

void Bbr::updateLoss(bool roundStart, const AckSample& sample) {
  heavyLoss_ = false;
  if (roundStart) {
    const double lost = static_cast<double>(roundLostBytes_);
    const double all = lost + static_cast<double>(roundAckedBytes_);
    heavyLoss_ = lost > kLossThreshold * all && lost >= kLossMinDatagrams * mss_;
    const bool cruising = state_ == State::kProbeBandwidth && phase_ > 1;
    const bool queued = seconds(roundMinRtt_) > kQueuedRttFactor * seconds(minRtt_);
    if (cruising && all > 0) noiseLoss_ += (lost / all - noiseLoss_) / 4;
    if (cruising && heavyLoss_ && queued) {
      bandwidthLow_ = std::max(roundBandwidth_, kLossReduction * bandwidth());
    }
    roundLostBytes_ = roundAckedBytes_ = 0;
    roundBandwidth_ = 0;
    roundMinRtt_ = Duration{0};
  }
  if (sample.rtt > Duration{0} && (roundMinRtt_ == Duration{0} || sample.rtt < roundMinRtt_)) roundMinRtt_ = sample.rtt;
  roundLostBytes_ += sample.lostBytes;
  roundAckedBytes_ += sample.ackedBytes;
}

void Bbr::updateBandwidth(const AckSample& sample) {
  const double rate = sample.deliveryRateBytesPerSecond;
  if (!(rate > 0)) return;
  roundBandwidth_ = std::max(roundBandwidth_, rate);
  // A sample that the application limited says only "at least this".
  if (!sample.appLimited || rate >= maxBandwidth_.maximum()) maxBandwidth_.update(round_, rate);
}

// [BBR2] "BBRUpdateACKAggregation".
void Bbr::updateAggregation(const AckSample& sample) {
  if (sample.ackedBytes == 0) return;
  double expected = bandwidth() * seconds(sample.now - aggregationStart_);
  if (aggregatedBytes_ <= expected) {
    aggregationStart_ = sample.now;
    aggregatedBytes_ = expected = 0;
  }
  aggregatedBytes_ += static_cast<double>(sample.ackedBytes);
  const double most = std::min(window_, bandwidth() * kMaxAggregationSeconds);
  aggregation_.update(round_, std::min(aggregatedBytes_ - expected, most));
}

// [BBR1] "Estimating When Startup has Filled the Pipe"; [BBR2] "Exiting Startup Based on Packet Loss".
void Bbr::checkFullPipe(bool roundStart, const AckSample& sample) {
  if (pipeFull_ || !roundStart || sample.appLimited) return;
  if (maxBandwidth_.maximum() >= fullBandwidth_ * kFullPipeGrowth) {
    fullBandwidth_ = maxBandwidth_.maximum();
    roundsWithoutGrowth_ = 0;
    return;
  }
  pipeFull_ = ++roundsWithoutGrowth_ >= kFullPipeRounds || heavyLoss_;
}

void Bbr::checkDrain(const AckSample& sample) {
  if (state_ == State::kStartup && pipeFull_) {
    state_ = State::kDrain;
    pacingGain_ = kDrainPacingGain;
    windowGain_ = kStartupWindowGain;
  }
  if (state_ == State::kDrain && static_cast<double>(sample.inFlightBytes) <= bdpBytes(1.0)) {
    enterProbeBandwidth(sample.now);
  }
}

void Bbr::enterProbeBandwidth(TimePoint now) {
  state_ = State::kProbeBandwidth;
  windowGain_ = kProbeWindowGain;
  // Any phase but the draining one ([BBR1] "Gain Cycling Randomization").
  const int phase = static_cast<int>(entropy_ % (kPhases - 1));
  entropy_ = entropy_ * 6364136223846793005ULL + 1442695040888963407ULL;
  startPhase(phase == 0 ? 0 : phase + 1, now);
}

void Bbr::startPhase(int phase, TimePoint now) {
  phase_ = phase;
  phaseStart_ = now;
  pacingGain_ = kPhaseGains[phase];
  if (phase == 0) {
    // What noise takes of a probe must not hide that there is more to have.
    pacingGain_ /= 1 - std::min(noiseLoss_, kMaxNoiseLoss);
    bandwidthLow_ = kInfinity;
  }
}

// [BBR1] "Gain Cycling Algorithm": the probing phase lasts until it filled the pipe to its gain or lost, the draining
// one no longer than needed.
void Bbr::updateCycle(const AckSample& sample) {
  if (state_ != State::kProbeBandwidth) return;
  const bool elapsed = sample.now - phaseStart_ > minRtt_;
  const double inFlight = static_cast<double>(sample.inFlightBytes);
  bool next = elapsed;
  if (pacingGain_ > 1) next = elapsed && (sample.lostBytes > 0 || inFlight >= bdpBytes(pacingGain_));
  if (pacingGain_ < 1) next = elapsed || inFlight <= bdpBytes(1.0);
  // An application that cannot fill the pipe would probe for ever.
  if (pacingGain_ > 1 && sample.now - phaseStart_ > 3 * minRtt_) next = true;
  if (next) startPhase((phase_ + 1) % kPhases, sample.now);
}

void Bbr::updateMinRtt(const AckSample& sample) {
  if (sample.rtt <= Duration{0}) return;
  if (minRtt_ == Duration{0} || sample.rtt <= minRtt_) {
    minRtt_ = sample.rtt;
    minRttStamp_ = sample.now;
  }
  if (state_ == State::kProbeRtt && (probeRttMin_ == Duration{0} || sample.rtt < probeRttMin_)) {
    probeRttMin_ = sample.rtt;
  }
}

// [BBR2] "ProbeRTT": a shorter queue for a moment shows the path's own delay.
void Bbr::checkProbeRtt(bool roundStart, const AckSample& sample) {
  if (minRtt_ == Duration{0}) return;
  if (state_ != State::kProbeRtt) {
    if (sample.now - minRttStamp_ <= kMinRttExpiry) return;
    if (idleRestart_) {
      if (sample.rtt <= Duration{0}) return;
      minRtt_ = sample.rtt;
      minRttStamp_ = sample.now;
      return;
    }
    state_ = State::kProbeRtt;
    pacingGain_ = 1;
    probeRttDone_ = kNever;
    probeRttMin_ = Duration{0};
    return;
  }
  if (probeRttDone_ == kNever) {
    if (sample.inFlightBytes > windowBytes()) return;
    probeRttDone_ = sample.now + kProbeRttTime;
    probeRttRoundDone_ = false;
    probeRttMin_ = sample.rtt;
    roundEndDelivered_ = sample.deliveredBytes;
    return;
  }
  if (roundStart) probeRttRoundDone_ = true;
  if (!probeRttRoundDone_ || sample.now < probeRttDone_) return;
  if (probeRttMin_ > Duration{0}) minRtt_ = probeRttMin_;
  minRttStamp_ = sample.now;
  if (pipeFull_) {
    enterProbeBandwidth(sample.now);
  } else {
    state_ = State::kStartup;
    pacingGain_ = kStartupPacingGain;
    windowGain_ = kStartupWindowGain;
  }
}

// [BBR1] "Pacing Rate", "Congestion Window".
void Bbr::updateControl(const AckSample& sample) {
  const double acked = static_cast<double>(sample.ackedBytes);
  double rate = pacingGain_ * bandwidth() * kPacingMargin;
  // Until the pipe has been full, the window is the better guess: the first rates measured are those of a few small
  // messages.
  if (!pipeFull_ && sample.smoothedRtt > Duration{0}) {
    rate = std::max(
        {rate, pacingGain_ * window_ / seconds(sample.smoothedRtt), std::isinf(pacingRate_) ? 0 : pacingRate_});
  }
  if (rate > 0) pacingRate_ = rate;
  if (windowBeforeTimeout_ > 0 && acked > 0 && round_ > timeoutRound_ + 1) {
    window_ = std::max(window_, windowBeforeTimeout_);
    windowBeforeTimeout_ = 0;
  }
  if (bandwidth() > 0 && minRtt_ > Duration{0} && pipeFull_) {
    const double allowance = kAllowanceDatagrams * mss_ + bandwidth() * kAllowanceSeconds + aggregation_.maximum();
    window_ = std::min(window_ + acked, bdpBytes(windowGain_) + allowance);
  } else if (bandwidth() <= 0 || window_ < bdpBytes(windowGain_) || window_ < kInitialWindowDatagrams * mss_ ||
             round_ <= 1) {
    window_ += acked;  // startup: doubles each round
  }
  window_ = std::max(window_, minWindow());
}

double Bbr::bdpBytes(double gain) const {
  if (minRtt_ == Duration{0}) return kInitialWindowDatagrams * mss_;
  return gain * bandwidth() * seconds(minRtt_);
}

double Bbr::minWindow() const { return kMinWindowDatagrams * mss_; }

}  // namespace gloo_bypass
