// What a ring all-reduce should take over edges of known delay and rate, for simulated times to stand beside. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/simulation/core/ring_schedule.h"
#include "transport/base/time.h"

namespace gloo_bypass::sim {

// From a rank to the one before it. What a frame carries beside payload counts at the edge's rate.
struct IdealEdge {
  std::uint64_t rateBitsPerSecond = 0;  // 0: no limit
  Duration delay{0};
  std::size_t payloadBytes = 1412;  // of a full frame
  std::size_t headerBytes = 102;    // of each frame
  double loss = 0;                  // of frames, each by itself
  Duration roundTrip{0};            // what a repetition takes at least: the news of the loss, and the frame again

  std::uint64_t frames(std::uint64_t bytes) const;
  // How long a segment occupies the edge.
  Duration serialisation(std::uint64_t bytes) const;
};

struct RingBounds {
  // Gloo's schedule iteration by iteration over a transport that adds nothing: data leaves when it is posted, the send
  // is complete then. Where one edge's delay D dwarfs all else, 2 N iterations in each D.
  Duration schedule{0};
  // The same in the limit of long delays: iterations / 2N rounds of the ring, each as long as all delays together.
  Duration pipeline{0};
  // The same over edges that lose frames: a segment is there a round trip later for each time that one of its frames
  // must be repeated, as often as chance has it (the mean of several draws). What a transport without redundancy cannot
  // go below by much.
  Duration scheduleWithLoss{0};
  // The slowest way of a segment through 2(N-1) edges, and all bytes at the lowest rate. Where both matter they
  // overlap, so that a time may lie below their sum.
  Duration propagation{0}, serialisation{0};
  // 2(N-1) alpha + 2(N-1)/N S / beta: alpha the mean delay, beta the lowest rate, no headers.
  Duration alphaBeta{0};

  Duration physics() const { return propagation + serialisation; }
};

// edges[r] leads from rank r to the one before it. `groups` rings at once have an equal share of each edge's rate.
RingBounds ringBounds(const RingSchedule& schedule, std::span<const IdealEdge> edges, std::size_t groups = 1);

}  // namespace gloo_bypass::sim
