#include <numeric>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {
namespace {

std::vector<int> allRanks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The rank `distance` further on. Every rank begins with another peer, so that none gets all first messages.
int away(const Place& place, int distance) { return (place.rank + distance + place.size) % place.size; }

void scatterAndSum(const Place& place, ScheduleBuilder& builder) {
  if (place.size == 1) return;
  for (int k = 1; k < place.size; ++k) builder.send(0, onePart(away(place, k)), away(place, k));
  builder.reduce(0, onePart(place.rank), allRanks(place.size));
}

void gatherAll(const Place& place, int round, ScheduleBuilder& builder) {
  for (int k = 1; k < place.size; ++k) {
    builder.send(round, onePart(place.rank), away(place, k));
    builder.receive(round, onePart(away(place, -k)), away(place, -k));
  }
}

void gatherAtRoot(const Place& place, int round, ScheduleBuilder& builder) {
  if (place.rank != place.root) {
    builder.send(round, onePart(place.rank), place.root);
    return;
  }
  for (int k = 1; k < place.size; ++k) builder.receive(round, onePart(away(place, k)), away(place, k));
}

}  // namespace

Schedule oneShotAllReduce(const Place& place) {
  ScheduleBuilder builder(place.rank, 1);
  for (int k = 1; k < place.size; ++k) builder.send(0, onePart(0), away(place, k));
  if (place.size > 1) builder.reduce(0, onePart(0), allRanks(place.size));
  return std::move(builder).finish();
}

Schedule directAllReduce(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  scatterAndSum(place, builder);
  gatherAll(place, 1, builder);
  return std::move(builder).finish();
}

Schedule directReduceScatter(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  scatterAndSum(place, builder);
  return std::move(builder).finish();
}

Schedule directAllGather(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  gatherAll(place, 0, builder);
  return std::move(builder).finish();
}

Schedule directReduce(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  scatterAndSum(place, builder);
  gatherAtRoot(place, 1, builder);
  return std::move(builder).finish();
}

Schedule directGather(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  gatherAtRoot(place, 0, builder);
  return std::move(builder).finish();
}

Schedule directScatter(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  if (place.rank != place.root) builder.receive(0, onePart(place.rank), place.root);
  for (int k = 1; k < place.size && place.rank == place.root; ++k) {
    builder.send(0, onePart(away(place, k)), away(place, k));
  }
  return std::move(builder).finish();
}

Schedule pairwiseAllToAll(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size * place.size);
  for (int k = 1; k < place.size; ++k) {
    const int to = away(place, k), from = away(place, -k);
    builder.send(k - 1, onePart(place.rank * place.size + to), to);
    builder.receive(k - 1, onePart(from * place.size + place.rank), from);
  }
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
