#include <algorithm>

#include "collectives/schedule/algorithms.h"

namespace gloo_bypass::collectives {
namespace {

// The ranks of each host, in the order of the hosts' lowest ranks.
std::vector<std::vector<int>> ranksByHost(const Place& place) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < place.size; ++rank) {
    const auto hostOf = [&](int one) { return place.hostOf.empty() ? 0 : place.hostOf[static_cast<std::size_t>(one)]; };
    const auto mine = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const auto& ranks) { return hostOf(ranks.front()) == hostOf(rank); });
    if (mine == hosts.end()) {
      hosts.push_back({rank});
    } else {
      mine->push_back(rank);
    }
  }
  return hosts;
}

}  // namespace

Schedule twoLevelAllReduce(const Place& place, MakeSchedule betweenHosts) {
  const auto hosts = ranksByHost(place);
  std::vector<int> leaders;
  int mine = 0;
  for (const auto& ranks : hosts) {
    if (std::find(ranks.begin(), ranks.end(), place.rank) != ranks.end()) mine = static_cast<int>(leaders.size());
    leaders.push_back(ranks.front());
  }
  // Every rank makes this one, for its parts and its rounds.
  const int leaderCount = static_cast<int>(leaders.size());
  const Schedule between = betweenHosts({.rank = mine, .size = leaderCount});
  int rounds = 0;
  for (int leader = 0; leader < leaderCount; ++leader) {
    for (const Step& step : betweenHosts({.rank = leader, .size = leaderCount}).steps) {
      rounds = std::max(rounds, step.round + 1);
    }
  }
  const Parts whole{0, between.parts};
  const std::vector<int>& local = hosts[static_cast<std::size_t>(mine)];
  ScheduleBuilder builder(place.rank, between.parts);
  if (place.rank != local.front()) {
    builder.send(0, whole, local.front());
    builder.receive(1 + rounds, whole, local.front());
    return std::move(builder).finish();
  }
  if (local.size() > 1) builder.reduce(0, whole, local);
  builder.append(between, leaders, 1);
  for (std::size_t i = 1; i < local.size(); ++i) builder.send(1 + rounds, whole, local[i]);
  return std::move(builder).finish();
}

Schedule twoLevelRing(const Place& place) { return twoLevelAllReduce(place, ringAllReduce); }
Schedule twoLevelOneShot(const Place& place) { return twoLevelAllReduce(place, oneShotAllReduce); }

}  // namespace gloo_bypass::collectives
