#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {

// After round k a rank knows that 2^(k+1) ranks have come. "Reduces" nothing: the step waits for both.
Schedule disseminationBarrier(const Place& place) {
  ScheduleBuilder builder(place.rank, 1);
  for (int round = 0, distance = 1; distance < place.size; ++round, distance *= 2) {
    builder.send(round, {0, 1}, (place.rank + distance) % place.size);
    builder.reduce(round, {0, 1}, {(place.rank + place.size - distance) % place.size, place.rank});
  }
  return std::move(builder).finish();
}

}  // namespace gloo_bypass::collectives
