// Which frames in flight are lost: those that enough later-sent frames have overtaken, or that anything sent later has
// overtaken longer ago than a reordering may last (RFC 9002, 6.1; RFC 8985). Silence alone makes nothing lost: a peer
// that waits for a core has everything. A frame that repair frames cover is given the time in which they may bring it
// back: what has overtaken it counts from the last of them. A loss that turns out to be mere reordering widens both
// thresholds; after enough round trips with losses that do not, they narrow again (RFC 8985, 6.2). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/base/time.h"
#include "transport/core/rto_estimator.h"
#include "transport/core/send_scoreboard.h"

namespace gloo_bypass {

class LossDetector {
 public:
  // A covered frame counts as lost by time this share of the round trip later than another: its block may stay open for
  // that long.
  static constexpr int kBlockShare = 8;

  // Marks what is lost; returns its bytes. Sets deadline() where time alone will decide the next one.
  std::size_t detect(TimePoint now, const RtoEstimator& rtt, SendScoreboard* board);
  TimePoint deadline() const { return deadline_; }
  // A datagram of any type, sent at `sentAt`, has arrived, and the peer has acknowledged everything that had arrived by
  // then. False: this was known.
  bool onArrivalOf(TimePoint sentAt);
  // A frame declared lost had arrived after all. At most one step a round trip.
  void onSpuriousLoss(TimePoint now, const RtoEstimator& rtt);
  void reset() { deadline_ = kNever; }
  // All frames that were lost, and those that were lost although repair frames covered them.
  std::uint64_t lostFrames() const { return lostFrames_; }
  std::uint64_t unrepairedFrames() const { return unrepairedFrames_; }
  // The largest datagram among the frames that were lost more than once since the last call; 0: none.
  std::size_t takeLostAgain() { return std::exchange(lostAgain_, 0); }
  std::uint64_t orderThreshold() const { return orderThreshold_; }

 private:
  static constexpr std::uint64_t kOrderThreshold = 3;  // RFC 9002
  static constexpr std::uint64_t kMaxOrderThreshold = 4096;
  static constexpr int kNarrowAfter = 16;                       // round trips; RFC 8985: recoveries
  static constexpr int kTimeEighths = 9, kMaxTimeEighths = 16;  // of the RTT; RFC 9002: 9/8
  void narrow(TimePoint now, const RtoEstimator& rtt);
  static constexpr Duration kGranularity = std::chrono::microseconds(20);

  std::uint64_t orderThreshold_ = kOrderThreshold;
  int timeEighths_ = kTimeEighths;
  TimePoint deadline_ = kNever;
  TimePoint widenedAt_{}, lostAt_{};
  int lossesSince_ = 0;          // round trips with a loss since either threshold changed
  TimePoint overtakenBefore_{};  // what was sent earlier has been overtaken
  std::uint64_t lostFrames_ = 0, unrepairedFrames_ = 0;
  std::size_t lostAgain_ = 0;
};

}  // namespace gloo_bypass
