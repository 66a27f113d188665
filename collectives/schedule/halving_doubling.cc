#include <algorithm>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/folding.h"

namespace gloo_bypass::collectives {

Schedule halvingDoublingAllReduce(const Place& place) {
  const Folding folding(place);
  const int core = folding.core(), number = folding.number();
  const Parts whole{0, core};
  ScheduleBuilder builder(place.rank, core);
  const int lastRound = 1 + 2 * folding.doublings();
  if (!folding.begin(builder, whole, lastRound)) return std::move(builder).finish();
  int round = 1;
  Parts mine = whole;
  for (int distance = core / 2; distance > 0; distance /= 2, ++round) {
    const int peer = folding.rankOf(number ^ distance), middle = mine.begin + mine.size() / 2;
    const Parts lower{mine.begin, middle}, upper{middle, mine.end};
    const bool keepsUpper = (number & distance) != 0;
    builder.send(round, keepsUpper ? lower : upper, peer);
    mine = keepsUpper ? upper : lower;
    builder.reduce(round, mine, {std::min(place.rank, peer), std::max(place.rank, peer)});
  }
  for (int distance = 1; distance < core; distance *= 2, ++round) {
    const int peer = folding.rankOf(number ^ distance);
    const bool isUpper = (number & distance) != 0;
    const Parts theirs = isUpper ? Parts{mine.begin - distance, mine.begin} : Parts{mine.end, mine.end + distance};
    builder.send(round, mine, peer);
    builder.receive(round, theirs, peer);
    mine = {std::min(mine.begin, theirs.begin), std::max(mine.end, theirs.end)};
  }
  folding.end(builder, whole, lastRound);
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
