// Round-trip time, and the timeouts that follow from it (RFC 6298; RFC 9002, 6.2), with a configured floor and ceiling.
// Pure.
#pragma once

#include "transport/base/time.h"

namespace gloo_bypass {

class RtoEstimator {
 public:
  RtoEstimator(Duration minRto, Duration maxRto) : minRto_(minRto), maxRto_(maxRto) {}

  // One measurement; `rtt` > 0.
  void addSample(TimePoint now, Duration rtt);
  bool hasSample() const { return smoothed_.count() != 0; }
  Duration smoothed() const { return smoothed_; }
  Duration latest() const { return latest_; }
  // Smallest of the last 10 to 20 seconds.
  Duration minimum() const;

  // The timeout, back-off included. `peerAckDelay`: how long the peer may sit on an acknowledgement.
  Duration rto(Duration peerAckDelay) const;
  // Silence after which a loss probe is sent: about two round trips the first time (RFC 8985, 7.2), without a floor,
  // since asking costs a frame; doubled each time that nothing answers.
  Duration probeTimeout(Duration peerAckDelay) const;
  void backOff();
  int backOffs() const { return backOffs_; }
  void resetBackOff() { backOffs_ = 0; }

 private:
  // 2^10 times the timeout is above any ceiling that makes sense.
  static constexpr int kMaxBackOffs = 10;
  static constexpr Duration kInitialRto = std::chrono::milliseconds(200);
  // As BBR's: long against queues, short against route changes.
  static constexpr Duration kMinimumAge = std::chrono::seconds(10);

  Duration minRto_, maxRto_;
  Duration smoothed_{0}, variation_{0}, latest_{0};
  Duration currentMinimum_{Duration::max()}, previousMinimum_{Duration::max()};
  TimePoint minimumSince_{};
  int backOffs_ = 0;
};

}  // namespace gloo_bypass
