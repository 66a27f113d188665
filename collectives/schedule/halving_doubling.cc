#include <algorithm>
#include <bit>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {

Schedule halvingDoublingAllReduce(const Place& place) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(place.size)));
  const int folded = place.size - core;  // pairs of ranks 2 i and 2 i + 1 that count as one
  const Parts whole{0, core};
  ScheduleBuilder builder(place.rank, core);
  const int lastRound = 1 + 2 * std::countr_zero(static_cast<unsigned>(core));
  const bool inPair = place.rank < 2 * folded;
  if (inPair && place.rank % 2 == 1) {
    builder.send(0, whole, place.rank - 1);
    builder.receive(lastRound, whole, place.rank - 1);
    return std::move(builder).finish();
  }
  if (inPair) builder.reduce(0, whole, {place.rank, place.rank + 1});

  const int number = inPair ? place.rank / 2 : place.rank - folded;  // among those that go on
  const auto rankOf = [folded](int other) { return other < folded ? 2 * other : other + folded; };
  int round = 1;
  Parts mine = whole;
  for (int distance = core / 2; distance > 0; distance /= 2, ++round) {
    const int peer = rankOf(number ^ distance), middle = mine.begin + mine.size() / 2;
    const Parts lower{mine.begin, middle}, upper{middle, mine.end};
    const bool keepsUpper = (number & distance) != 0;
    builder.send(round, keepsUpper ? lower : upper, peer);
    mine = keepsUpper ? upper : lower;
    builder.reduce(round, mine, {std::min(place.rank, peer), std::max(place.rank, peer)});
  }
  for (int distance = 1; distance < core; distance *= 2, ++round) {
    const int peer = rankOf(number ^ distance);
    const bool isUpper = (number & distance) != 0;
    const Parts theirs = isUpper ? Parts{mine.begin - distance, mine.begin} : Parts{mine.end, mine.end + distance};
    builder.send(round, mine, peer);
    builder.receive(round, theirs, peer);
    mine = {std::min(mine.begin, theirs.begin), std::max(mine.end, theirs.end)};
  }
  if (inPair) builder.send(lastRound, whole, place.rank + 1);
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
