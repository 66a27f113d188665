// How far another machine's clock is from this one's (F. Cristian, "Probabilistic clock synchronization", Distributed
// Computing 3, 1989).
//
// A reading of the remote clock that arrives between two readings of the local one was taken somewhere between them.
// The middle is the estimate, half the round trip bounds its error however uneven the two ways are, and the exchange
// with the shortest round trip gives the best bound. Pure; times are nanoseconds of the clocks' own epochs.
#pragma once

#include <cstdint>
#include <span>

namespace gloo_bypass::trainer {

struct ClockExchange {
  int64_t sentNs;      // local clock, before the question
  int64_t remoteNs;    // remote clock, between question and answer
  int64_t receivedNs;  // local clock, after the answer
};

struct ClockOffset {
  int64_t localNs = 0;       // when, by the local clock
  int64_t offsetNs = 0;      // remote clock less local clock
  int64_t errorBoundNs = 0;  // the true offset is no farther away
};

// Of at least one exchange.
ClockOffset estimateOffset(std::span<const ClockExchange> exchanges);

// The remote clock's reading when the local clock reads localNs. Clocks drift apart: between two estimates the offset
// is interpolated, outside of them the nearer one counts.
int64_t toRemoteClock(int64_t localNs, const ClockOffset& first, const ClockOffset& last);

}  // namespace gloo_bypass::trainer
