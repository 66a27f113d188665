#include <algorithm>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/hosts.h"

namespace gloo_bypass::collectives {

Schedule twoLevelAllReduce(const Place& place, MakeSchedule betweenHosts) {
  const Hosts hosts(place);
  // Every rank makes this one, for its parts and its rounds.
  const Schedule between = betweenHosts({.rank = hosts.mine(), .size = hosts.count()});
  int rounds = 0;
  for (int leader = 0; leader < hosts.count(); ++leader) {
    for (const Step& step : betweenHosts({.rank = leader, .size = hosts.count()}).steps) {
      rounds = std::max(rounds, step.round + 1);
    }
  }
  const Parts whole{0, between.parts};
  const std::vector<int>& local = hosts.mates();
  ScheduleBuilder builder(place.rank, between.parts);
  if (place.rank != local.front()) {
    builder.send(0, whole, local.front());
    builder.receive(1 + rounds, whole, local.front());
    return std::move(builder).finish();
  }
  if (local.size() > 1) builder.reduce(0, whole, local);
  builder.append(between, hosts.leaders(), 1);
  for (std::size_t i = 1; i < local.size(); ++i) builder.send(1 + rounds, whole, local[i]);
  return std::move(builder).finish();
}

Schedule twoLevelRing(const Place& place) { return twoLevelAllReduce(place, ringAllReduce); }
Schedule twoLevelOneShot(const Place& place) { return twoLevelAllReduce(place, oneShotAllReduce); }

}  // namespace gloo_bypass::collectives
