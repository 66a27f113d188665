// Delay-based congestion control for racks, after Swift (Kumar et al., SIGCOMM 2020, section 3) and Timely (Mittal et
// al., SIGCOMM 2015, section 4.3 for the hyperactive increase): the window grows while the round trip stays under a
// target, and shrinks, once a round trip at most, in proportion to the excess.
//
//   target = minimal RTT x 1.5 + host delay + flow scaling (up to 50 us more for small windows: many flows share)
//   host delay = the hosts' (below), or the time that 192 KiB take at the flow's rate, if that is longer; that is 2 ms
//   at most
//
// Differences from the paper, and why:
// - One delay, there and back: there are no NIC timestamps to tell the fabric's from the host's. Below 790 Mbit/s it is
//   without the queue on the way back (return_queue.h), which a peer that sends as much fills.
// - The host delay, 150 us to begin with, covers our own batching, delayed acknowledgements and the scheduling of a
//   polling thread. At 10 Gbit/s and less three bursts of each flow take longer; with less under way a link is idle
//   until busy hosts have run again.
// - A queue that a decrease has cut by a part is shorter by that part a round trip later. Delay that is gone altogether
//   was none: a host waited for a core. Then the decrease is undone and the host delay doubles, up to 1 ms; it halves
//   each 100 ms. So a flow between busy hosts keeps enough under way to last through such waits, and one between hosts
//   that poll keeps its queue short.
// - The base of the target is measured (minimal RTT), not configured from the topology.
// - A doubling start until the target is first passed; the paper's flows start in a warm fabric.
// - No window under two datagrams, so no pacing: incast of more flows than the queue has datagrams is left to the RTO.
//
// Pure. Sizes in bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/core/congestion.h"
#include "transport/core/congestion/windowed_filter.h"

namespace gloo_bypass {

class Swift final : public CongestionController {
 public:
  explicit Swift(std::size_t mss);

  void onSent(TimePoint now, std::size_t bytes, std::size_t inFlightBytes) override;
  void onAck(const AckSample& measured) override;
  void onTimeout(TimePoint now) override;
  std::size_t windowBytes() const override { return static_cast<std::size_t>(window_); }
  Duration pathRtt(Duration leastMeasured) const override {
    return minRtt_ > Duration{0} ? std::min(minRtt_, leastMeasured) : leastMeasured;
  }
  std::string_view name() const override { return "swift"; }

  // The round trip that the window is steered to. Zero before the first sample.
  Duration targetDelay() const;

 private:
  void updateMinimalRtt(const AckSample& sample);
  void endRound(const AckSample& sample);
  void increase(std::size_t ackedBytes);
  void decrease(double factor, const AckSample& sample);
  void judgeDecrease(const AckSample& sample);
  void forgetHostDelay(TimePoint now);
  void updateRate(const AckSample& sample);
  Duration withoutReturnQueue(const AckSample& sample) const;
  Duration burstTime() const;
  Duration burstDelay() const;
  bool mayDecrease(TimePoint now) const { return now - lastDecrease_ >= smoothedRtt_; }

  const double mss_;
  double window_;
  Duration minRtt_{0};
  bool pathChanged_ = false;  // the session's own minimum is of another path
  Duration smoothedRtt_{0};
  TimePoint lastDecrease_ = TimePoint{} - std::chrono::hours(24);
  Duration hostDelay_;
  TimePoint hostDelayHalvedAt_{};
  // Before the decreases that are not judged yet; window 0: there are none.
  struct Before {
    double window = 0;
    bool starting = false;
    int roundsUnderTarget = 0;
  } before_;
  Duration expectedDelay_{0};              // what a queue would still make after the latest of them
  std::uint64_t deliveredAtDecrease_ = 0;  // frames sent after it carry no smaller priorDeliveredBytes
  bool starting_ = true;                   // doubling, until the target is first passed
  bool windowLimited_ = false;             // this round filled the window; without that, growth would be unfounded
  bool lastRoundLimited_ = false;
  static constexpr int kRateRounds = 10;  // as BBR's
  WindowedMaximum<kRateRounds> maxRate_;  // bytes per second
  std::uint64_t round_ = 0;
  std::uint64_t roundEndDelivered_ = 0;
  int roundsUnderTarget_ = 0;  // in a row
  int roundsAtFloor_ = 0;      // in a row: at the minimal window, yet over the target
  Duration roundMinRtt_{0};    // of the rounds counted in roundsAtFloor_
  int timeouts_ = 0;           // in a row
};

}  // namespace gloo_bypass
