#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {
namespace {

// A ring through all ranks, upwards (step 1) or downwards (-1), for the parts from `first` on.
struct Ring {
  const Place& place;
  int step;
  int first;

  int next() const { return wrap(place.rank + step); }
  int previous() const { return wrap(place.rank - step); }
  // The part that belongs to the rank `back` places before this one.
  Parts part(int back) const {
    const int index = first + wrap(place.rank - step * back);
    return {index, index + 1};
  }
  int wrap(int rank) const { return ((rank % place.size) + place.size) % place.size; }
};

// Part p goes round from the rank after p, and ends in p with all ranks' values.
void reduceScatter(const Ring& ring, ScheduleBuilder& builder) {
  for (int k = 0; k + 1 < ring.place.size; ++k) {
    builder.send(k, ring.part(k + 1), ring.next());
    builder.reduce(k, ring.part(k + 2), {ring.previous(), ring.place.rank});
  }
}

void allGather(const Ring& ring, int round, ScheduleBuilder& builder) {
  for (int k = 0; k + 1 < ring.place.size; ++k) {
    builder.send(round + k, ring.part(k), ring.next());
    builder.receive(round + k, ring.part(k + 1), ring.previous());
  }
}

}  // namespace

Schedule ringAllReduce(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  const Ring ring{place, 1, 0};
  reduceScatter(ring, builder);
  allGather(ring, place.size - 1, builder);
  return std::move(builder).finish();
}

Schedule bidirectionalRingAllReduce(const Place& place) {
  ScheduleBuilder builder(place.rank, 2 * place.size);
  for (const Ring& ring : {Ring{place, 1, 0}, Ring{place, -1, place.size}}) {
    reduceScatter(ring, builder);
    allGather(ring, place.size - 1, builder);
  }
  return std::move(builder).finish();
}

Schedule ringReduceScatter(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  reduceScatter({place, 1, 0}, builder);
  return std::move(builder).finish();
}

Schedule ringAllGather(const Place& place) {
  ScheduleBuilder builder(place.rank, place.size);
  allGather({place, 1, 0}, 0, builder);
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
