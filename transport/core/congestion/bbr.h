// Model-based congestion control for long and lossy paths, of the BBR family: the window and the pacing rate follow
// from a model of the path (largest recent delivery rate, smallest recent round trip), not from single losses.
//
// Sources, by section title:
//   [BBR1] draft-cardwell-iccrg-bbr-congestion-control-00: state machine, gains, "ProbeBW" gain cycling
//   [BBR2] draft-cardwell-iccrg-bbr-congestion-control-02: "Exiting Startup Based on Packet Loss", "ProbeRTT" (half a
//          bandwidth-delay product every 5 s; not after a pause, which has left the queue empty: idle_restart), the
//          short-term bound bw_lo of "Updating the Model Upon Packet Loss"
//
//      start -> STARTUP ---full pipe---> DRAIN ---in flight <= BDP---> PROBE_BW (1.25, 0.75, 1 x 6: one minRtt each)
//                  ^                                                     |   ^
//                  +-- pipe never filled -- PROBE_RTT <-- minRtt is old -+   |  (from every state)
//                                               +------- 200 ms and a round -+
//
// Acknowledgements that come in clumps (a peer that waits for its core, a radio link) need more in flight: [BBR2]
// "BBRUpdateACKAggregation". Without, two processes that share a core would bring each other's rate down, step by step,
// to almost nothing.
//
// Differences from [BBR2], because the paths this is for (continents, tunnels, radio) lose without being full:
// - A loss rate below kLossThreshold (8 % of a round; the draft has 2 %), or without a queue, is taken for the path's
//   noise. Loss above it, with a queue, holds the rate to what is delivered until the next probe.
// - The probing gain makes up for the noise (only while probing: a policer's losses stop when the probe does), so that
//   the estimate does not sink cycle by cycle where 1.25 x (1 - loss) < 1.
//
// Pure. Sizes in bytes, rates in bytes per second.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/core/congestion.h"
#include "transport/core/congestion/windowed_filter.h"

namespace gloo_bypass {

class Bbr final : public CongestionController {
 public:
  enum class State : std::uint8_t { kStartup, kDrain, kProbeBandwidth, kProbeRtt };

  // `entropy` chooses where the gain cycle starts, so that flows do not probe together.
  Bbr(std::size_t mss, std::uint64_t entropy);

  void onSent(TimePoint now, std::size_t bytes, std::size_t inFlightBytes) override;
  void onAck(const AckSample& sample) override;
  void onTimeout(TimePoint now) override;
  std::size_t windowBytes() const override;
  double pacingRate() const override { return pacingRate_; }
  std::string_view name() const override { return "bbr"; }

  State state() const { return state_; }
  double bandwidth() const;
  Duration minRtt() const { return minRtt_; }

 private:
  static constexpr int kBandwidthRounds = 10;

  bool updateRound(const AckSample& sample);
  void updateBandwidth(const AckSample& sample);
  void updateAggregation(const AckSample& sample);
  void updateLoss(bool roundStart, const AckSample& sample);
  void checkFullPipe(bool roundStart, const AckSample& sample);
  void checkDrain(const AckSample& sample);
  void updateCycle(const AckSample& sample);
  void updateMinRtt(const AckSample& sample);
  void checkProbeRtt(bool roundStart, const AckSample& sample);
  void updateControl(const AckSample& sample);
  void enterProbeBandwidth(TimePoint now);
  void startPhase(int phase, TimePoint now);
  double bdpBytes(double gain) const;
  double minWindow() const;

  const double mss_;
  std::uint64_t entropy_;
  State state_ = State::kStartup;
  double pacingGain_;
  double windowGain_;
  double window_;
  double pacingRate_;

  // The model.
  WindowedMaximum<kBandwidthRounds> maxBandwidth_;
  WindowedMaximum<kBandwidthRounds> aggregation_;  // bytes acknowledged at once beyond what the bandwidth explains
  TimePoint aggregationStart_{};
  double aggregatedBytes_ = 0;  // acknowledged since then
  double bandwidthLow_;         // bw_lo: after a round of heavy loss, until the next probe; else infinity
  Duration minRtt_{0};
  TimePoint minRttStamp_{};
  bool idleRestart_ = false;  // nothing was in flight when what is acknowledged next was sent

  // Rounds: a round ends when a datagram sent after its start is acknowledged.
  std::uint64_t round_ = 0;
  std::uint64_t roundEndDelivered_ = 0;
  double roundBandwidth_ = 0;  // largest rate of this round
  std::size_t roundAckedBytes_ = 0, roundLostBytes_ = 0;
  Duration roundMinRtt_{0};
  bool heavyLoss_ = false;  // the round that just ended lost more than kLossThreshold
  double noiseLoss_ = 0;    // smoothed loss rate of rounds that did not probe

  // STARTUP.
  bool pipeFull_ = false;
  double fullBandwidth_ = 0;
  int roundsWithoutGrowth_ = 0;

  // PROBE_BW.
  int phase_ = 0;
  TimePoint phaseStart_{};

  // PROBE_RTT.
  TimePoint probeRttDone_ = kNever;
  Duration probeRttMin_{0};
  bool probeRttRoundDone_ = false;

  // After a retransmission timeout: the window to return to when a round has passed.
  double windowBeforeTimeout_ = 0;
  std::uint64_t timeoutRound_ = 0;
};

}  // namespace gloo_bypass
