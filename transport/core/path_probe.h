// Finds out how large a datagram the path carries (RFC 8899): probes are padded to the size in question and answered.
// Pure.
//
//            start()                    no size is left to try
//   ------------------> searching -----------------------------> searched -- after a while, ever longer --> searching
//                         ^   only its companions: replies           |
//                         +------------------------ verifying <------+ suspect()
//                                                        |
//                                                        +-- a reply, or a frame of that size arrives --> searched
//
// searching: the size wanted, then the usual ones below it, largest first; each kTries times. verifying: frames of the
// size in use are lost again and again while smaller datagrams arrive. Other losses look the same for a while, so it is
// probed as well before it is given up: for kUsualSmallest, which nearly every path carries, and where that does not
// come through for kSmallest. The search begins anew from there.
//
// A path that carries nothing, or a peer that stands still, is not narrow. So each probe of the size in use has a
// companion of kSmallest bytes right before it, and a try counts only if its companion is answered. Tries that do not
// count become rarer. The companion goes first: a peer that receives both at once may answer the last one alone, and a
// kernel that takes several datagrams as one (UDP_SEGMENT) loses a shorter one with the longer one before it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/base/time.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

class PathProbe {
 public:
  static constexpr std::size_t kSmallest = wire::kMinDatagramBytes, kUsualSmallest = wire::kUsualMinDatagramBytes;

  static constexpr int kTries = 4;
  // Where a smaller size ends the session: so many probes in a row are lost by chance on hardly any path.
  static constexpr int kTriesToEnd = 16;

  // `certain`: in use at once. `around`: bytes that the link adds to each datagram, and that no size here counts.
  // `triesToShrink`: of the size in use, before it counts as too large.
  void start(TimePoint now, std::size_t certain, std::size_t wanted, std::size_t around = 0,
             int triesToShrink = kTries) {
    around_ = around;
    triesToShrink_ = triesToShrink;
    confirmed_ = certain;
    wanted_ = wanted;
    raiseAfter_ = kFirstRaise;
    if (wanted > certain) {
      tryNow(now, wanted);
    } else {
      stop();
    }
  }
  std::size_t confirmed() const { return confirmed_; }
  bool due(TimePoint now) const { return now >= sendAt_; }
  TimePoint deadline() const { return sendAt_; }
  // The size of the next probe; 0: none is to be sent.
  std::size_t candidate() const { return companionIsDue() ? kSmallest : candidate_; }
  // A probe went out; the next is due after `timeout`, or the next smaller size is tried then.
  void onSent(TimePoint now, Duration timeout) {
    if (companionIsDue()) {
      endTry();
      try_ = Try::kCompanionSent;
      return;
    }
    ++tries_;
    sendAt_ = now + timeout;
    if (!verifying()) return;
    try_ = Try::kSent;
    sendAt_ = now + std::clamp(timeout * (1 << uncounted_), timeout, std::max(timeout, kLongestPause));
  }
  // The link did not take it after all. Elsewhere that is as if it were lost.
  void onNotSent() {
    if (!verifying()) return;
    if (try_ == Try::kSent) --tries_;
    try_ = Try::kNone;
    isAnswered_ = false;
  }
  // True: confirmed() has become smaller.
  bool onTimeout(TimePoint now) {
    if (now < sendAt_) return false;
    if (candidate_ == 0) {
      tryNow(now, wanted_);
      return false;
    }
    endTry();
    if (try_ == Try::kCompanionSent || tries_ < (verifying() ? triesToShrink_ : kTries)) return false;
    const bool shrunk = verifying();
    if (shrunk) confirmed_ = confirmed_ > kUsualSmallest ? kUsualSmallest : kSmallest;
    searchBelow(now, candidate_);
    return shrunk;
  }
  void onReply(TimePoint now, std::size_t size) {
    if (verifying() && size == kSmallest) {
      isAnswered_ = try_ != Try::kNone;
      return;
    }
    if (size != candidate_ || candidate_ == 0 || tries_ == 0) return;
    if (!verifying()) raiseAfter_ = kFirstRaise;
    confirmed_ = size;
    goOn(now);
  }
  void stop() {
    candidate_ = 0;
    try_ = Try::kNone;
    sendAt_ = kNever;
  }

  // A datagram of `size` may be too large for the path: it was lost, and not for the first time.
  void suspect(TimePoint now, std::size_t size) {
    if (size <= kSmallest || size > confirmed_ || verifying()) return;
    suspectedAt_ = now;
    suspected_ = size;
    interrupted_ = candidate_;
    interruptedTries_ = tries_;
    restsUntil_ = candidate_ == 0 ? sendAt_ : kNever;
    tryNow(now, confirmed_);
  }
  bool verifying() const { return candidate_ != 0 && candidate_ == confirmed_; }
  // While verifying(): a frame in datagrams of `size`, sent at `sentAt`, has arrived.
  void onArrival(TimePoint now, TimePoint sentAt, std::size_t size) {
    if (size >= suspected_ && size <= confirmed_ && sentAt > suspectedAt_) goOn(now);
  }

 private:
  // While verifying(): what has gone out of the try under way.
  enum class Try : std::uint8_t { kNone, kCompanionSent, kSent };
  // Between tries that do not count.
  static constexpr Duration kLongestPause = std::chrono::seconds(1);
  static constexpr int kMostDoublings = 6;
  // RFC 8899 has 600 s (PMTU_RAISE_TIMER). A route that comes back does so sooner, and a search is a few datagrams.
  static constexpr Duration kFirstRaise = std::chrono::seconds(5), kLongestRaise = std::chrono::seconds(600);
  // MTU 9000 and 4000-odd without the IPv4 and UDP headers, 1500 without those of IPv4 and of IPv6, and what tunnels
  // leave of 1500; then what is below kUsualSmallest, MTU 1200, 1000 and 800.
  static constexpr std::array<std::size_t, 9> kUsual = {8972, 4068, 2048, 1472, 1452, 1372, 1172, 972, 772};

  bool companionIsDue() const { return verifying() && try_ != Try::kCompanionSent; }
  // One whose companion was not answered in time does not count.
  void endTry() {
    if (try_ != Try::kSent) return;
    try_ = Try::kNone;
    uncounted_ = isAnswered_ ? 0 : std::min(uncounted_ + 1, kMostDoublings);
    if (!std::exchange(isAnswered_, false)) --tries_;
  }
  // The size in use is right: the search or the rest that was interrupted to verify it goes on.
  void goOn(TimePoint now) {
    const std::size_t next = std::exchange(interrupted_, 0);
    if (const TimePoint until = std::exchange(restsUntil_, kNever); until != kNever) {
      stop();
      sendAt_ = until;
      return;
    }
    if (next <= confirmed_) return rest(now);
    tryNow(now, next);
    tries_ = std::min(interruptedTries_, kTries - 1);  // a reply to the last may still be under way
  }
  void tryNow(TimePoint now, std::size_t size) {
    candidate_ = size;
    try_ = Try::kNone;
    isAnswered_ = false;
    tries_ = uncounted_ = 0;
    sendAt_ = now;
  }
  void searchBelow(TimePoint now, std::size_t size) {
    interrupted_ = 0;
    restsUntil_ = kNever;
    std::size_t next = 0;
    for (std::size_t usual : kUsual) {
      usual -= around_;
      if (usual < size && usual > confirmed_ && usual > next) next = usual;
    }
    if (next == 0) return rest(now);
    tryNow(now, next);
  }
  void rest(TimePoint now) {
    stop();
    if (confirmed_ >= wanted_) return;
    sendAt_ = now + raiseAfter_;
    raiseAfter_ = std::min(2 * raiseAfter_, kLongestRaise);
  }

  std::size_t confirmed_ = 0, wanted_ = 0, candidate_ = 0, around_ = 0;
  std::size_t interrupted_ = 0;  // the candidate that verifying displaced, with its tries
  int interruptedTries_ = 0;
  TimePoint restsUntil_ = kNever;  // the rest that verifying displaced; kNever: none
  int tries_ = 0, triesToShrink_ = kTries;
  Try try_ = Try::kNone;
  bool isAnswered_ = false;  // its companion
  int uncounted_ = 0;        // tries in a row
  TimePoint sendAt_ = kNever;
  Duration raiseAfter_ = kFirstRaise;
  std::size_t suspected_ = 0;
  TimePoint suspectedAt_{};
};

}  // namespace gloo_bypass
