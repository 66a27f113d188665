// Algorithms over powers of two, for any number of ranks: of the first ranks, two count as one (Rabenseifner's
// reduction to a power of two). The one with the odd number gives its vector to the other before, and gets the result
// afterwards. Pure.
#pragma once

#include <bit>

#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

class Folding {
 public:
  explicit Folding(const Place& place)
      : rank_(place.rank),
        core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(place.size)))),
        folded_(place.size - core_) {}

  int core() const { return core_; }  // how many go on: a power of two
  int doublings() const { return std::countr_zero(static_cast<unsigned>(core_)); }
  // Whether this rank is one of those that go on, from round 1 to the one before `lastRound`. Its steps before these
  // are appended; of one that does not go on, all.
  bool begin(ScheduleBuilder& builder, Parts whole, int lastRound) const {
    if (!inPair()) return true;
    if (rank_ % 2 == 0) {
      builder.reduce(0, whole, {rank_, rank_ + 1});
      return true;
    }
    builder.send(0, whole, rank_ - 1);
    builder.receive(lastRound, whole, rank_ - 1);
    return false;
  }
  void end(ScheduleBuilder& builder, Parts whole, int lastRound) const {
    if (inPair()) builder.send(lastRound, whole, rank_ + 1);
  }
  // Among those that go on.
  int number() const { return inPair() ? rank_ / 2 : rank_ - folded_; }
  int rankOf(int number) const { return number < folded_ ? 2 * number : number + folded_; }

 private:
  bool inPair() const { return rank_ < 2 * folded_; }

  const int rank_, core_, folded_;
};

}  // namespace gloo_bypass::collectives
