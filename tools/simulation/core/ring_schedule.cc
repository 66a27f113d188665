#include "tools/simulation/core/ring_schedule.h"

#include <algorithm>

namespace gloo_bypass::sim {
namespace {

std::uint64_t dividedUp(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }

}  // namespace

RingSchedule::RingSchedule(std::size_t ranks, std::uint64_t bytes, std::size_t maxSegmentBytes)
    : ranks_(ranks), bytes_(bytes) {
  const std::size_t largest = std::max<std::size_t>(1, maxSegmentBytes / kElementBytes) * kElementBytes;
  const std::uint64_t wanted = std::max<std::uint64_t>(dividedUp(bytes, largest), 2 * ranks);
  segmentsPerRank_ = dividedUp(wanted, ranks);
  segmentBytes_ = dividedUp(dividedUp(bytes, segmentsPerRank_ * ranks), kElementBytes) * kElementBytes;
}

std::size_t RingSchedule::sendBytes(std::size_t rank, int half, int iteration) const {
  const std::size_t first = half == 0 ? next(rank) : rank;
  const std::size_t segment =
      (first * segmentsPerRank_ + static_cast<std::size_t>(iteration)) % (ranks_ * segmentsPerRank_);
  const std::uint64_t offset = static_cast<std::uint64_t>(segment) * segmentBytes_;
  return offset >= bytes_ ? 0 : static_cast<std::size_t>(std::min<std::uint64_t>(segmentBytes_, bytes_ - offset));
}

}  // namespace gloo_bypass::sim
