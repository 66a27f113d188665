// Gloo's ring all-reduce (gloo/allreduce.cc) as arithmetic: how it cuts a vector, and what each rank sends when. Pure.
//
// A vector is cut into N x m segments of equal length (m at least 2, a segment at most what is asked for, 1 MiB in
// Gloo). The first half (reduce-scatter) and the second (all-gather) take (N-1) m iterations each. In each one a rank
// sends a segment to the rank before it and receives one from the rank after it; iteration i waits for the receive and
// the send of iteration i-2. What lies behind the end of the vector is shorter or not sent at all.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gloo_bypass::sim {

class RingSchedule {
 public:
  static constexpr std::size_t kGlooSegmentBytes = std::size_t{1} << 20;
  static constexpr std::size_t kElementBytes = 4;
  static constexpr int kHalves = 2;
  // How many iterations a rank runs ahead of what it waits for.
  static constexpr int kAhead = 2;

  // `ranks` at least 2, `bytes` and `maxSegmentBytes` at least one element.
  RingSchedule(std::size_t ranks, std::uint64_t bytes, std::size_t maxSegmentBytes = kGlooSegmentBytes);

  std::size_t ranks() const { return ranks_; }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t segmentsPerRank() const { return segmentsPerRank_; }
  std::size_t segmentBytes() const { return segmentBytes_; }
  // Of one half; those that only wait for what the last two posted are not counted.
  int iterations() const { return static_cast<int>((ranks_ - 1) * segmentsPerRank_); }

  std::size_t previous(std::size_t rank) const { return (rank + ranks_ - 1) % ranks_; }  // to whom a rank sends
  std::size_t next(std::size_t rank) const { return (rank + 1) % ranks_; }               // from whom it receives

  // Bytes that a rank sends and receives in an iteration of a half (0 or 1); 0: nothing is sent, nor waited for.
  std::size_t sendBytes(std::size_t rank, int half, int iteration) const;
  std::size_t receiveBytes(std::size_t rank, int half, int iteration) const {
    return sendBytes(next(rank), half, iteration);
  }

 private:
  std::size_t ranks_;
  std::uint64_t bytes_;
  std::size_t segmentsPerRank_, segmentBytes_;
};

}  // namespace gloo_bypass::sim
