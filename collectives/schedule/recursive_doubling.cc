#include <algorithm>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/folding.h"

namespace gloo_bypass::collectives {

Schedule recursiveDoublingAllReduce(const Place& place) {
  const Folding folding(place);
  constexpr Parts kWhole{0, 1};
  ScheduleBuilder builder(place.rank, 1);
  const int lastRound = 1 + folding.doublings();
  if (!folding.begin(builder, kWhole, lastRound)) return std::move(builder).finish();
  int round = 1;
  for (int distance = 1; distance < folding.core(); distance *= 2, ++round) {
    const int peer = folding.rankOf(folding.number() ^ distance);
    builder.send(round, kWhole, peer);
    // Both add in the same order, so that all ranks have the same bits.
    builder.reduce(round, kWhole, {std::min(place.rank, peer), std::max(place.rank, peer)});
  }
  folding.end(builder, kWhole, lastRound);
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
