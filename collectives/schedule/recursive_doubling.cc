#include <algorithm>
#include <bit>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {

Schedule recursiveDoublingAllReduce(const Place& place) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(place.size)));
  const int folded = place.size - core;  // pairs of ranks 2 i and 2 i + 1 that count as one
  constexpr Parts kWhole{0, 1};
  ScheduleBuilder builder(place.rank, 1);
  const int lastRound = 1 + std::countr_zero(static_cast<unsigned>(core));
  const bool inPair = place.rank < 2 * folded;
  if (inPair && place.rank % 2 == 1) {
    builder.send(0, kWhole, place.rank - 1);
    builder.receive(lastRound, kWhole, place.rank - 1);
    return std::move(builder).finish();
  }
  if (inPair) builder.reduce(0, kWhole, {place.rank, place.rank + 1});

  const int number = inPair ? place.rank / 2 : place.rank - folded;  // among those that go on
  const auto rankOf = [folded](int other) { return other < folded ? 2 * other : other + folded; };
  int round = 1;
  for (int distance = 1; distance < core; distance *= 2, ++round) {
    const int peer = rankOf(number ^ distance);
    builder.send(round, kWhole, peer);
    // Both add in the same order, so that all ranks have the same bits.
    builder.reduce(round, kWhole, {std::min(place.rank, peer), std::max(place.rank, peer)});
  }
  if (inPair) builder.send(lastRound, kWhole, place.rank + 1);
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
