// Spreads datagrams over time at a given rate. Pure; owned by a session. Times are the caller's, sizes in bytes.
//
//   if (!pacer.mayReleaseAt(now)) wait until pacer.wakeTime();   // pollTimeout
//   send; pacer.onSent(now, bytes);
//
// A leaky bucket kept as one point in time (the "theoretical arrival time" of ITU-T I.371's GCRA): `next_` is when the
// bucket would be empty. A burst of up to `burstBytes_` passes at once, so a timer that fires late by less than the
// burst's duration costs no throughput. A sender that is kept from running, though it has something to send, makes up
// for up to `lateness` of it: else two processes that share a core would send at half of the rate, measure that, and
// take it for the path's.
#pragma once

#include <cstddef>
#include <limits>

#include "transport/base/time.h"

namespace gloo_bypass {

class Pacer {
 public:
  // Bytes per second; infinity (the start): not paced. Cheap when the rate is as before. `datagramBytes`: the largest
  // one.
  void setRate(double bytesPerSecond, std::size_t datagramBytes);
  // How much of the time in which it could not run a sender makes up for.
  void setLateness(Duration most) { lateness_ = most; }
  // Until the next call: whether only pacing, or a wait for a core, holds back what there is to send.
  void setBacklogged(bool backlogged) { backlogged_ = backlogged; }
  // The next datagram may go at this time or later; a time in the past means now.
  TimePoint releaseTime() const { return next_ - tolerance_; }
  bool mayReleaseAt(TimePoint now) const { return releaseTime() <= now; }
  // When a sender that waits only for this should look again: half of a burst may leave then. Not one datagram, or it
  // would be woken for each; not the whole burst, so that a timer may fire late by half of the burst's duration.
  TimePoint wakeTime() const { return releaseTime() + untilHalfBurst_; }
  void onSent(TimePoint now, std::size_t bytes);
  // The port did not take the datagram of the last onSent.
  void undo(std::size_t bytes);

 private:
  Duration timeFor(std::size_t bytes) const;

  double bytesPerSecond_ = std::numeric_limits<double>::infinity();
  double nanosecondsPerByte_ = 0;
  std::size_t datagramBytes_ = 0;
  // How much may leave back to back. As BBR's send quantum: one millisecond's worth, at least two datagrams, at most 64
  // KiB (draft-cardwell-iccrg-bbr-congestion-control-02, "Send Quantum").
  std::size_t burstBytes_ = 0;
  Duration tolerance_{0};
  Duration untilHalfBurst_{0};  // from when one datagram may leave
  Duration lateness_{0};
  bool backlogged_ = false;
  TimePoint lastSent_ = TimePoint{} - std::chrono::hours(24);
  TimePoint next_ = TimePoint{} - std::chrono::hours(24);  // long ago: nothing is held back at the start
};

}  // namespace gloo_bypass
