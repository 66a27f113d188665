#include "collectives/memory/host_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace gloo_bypass::collectives {

int coresIn(std::span<const std::uint64_t> coreSet) {
  return std::accumulate(coreSet.begin(), coreSet.end(), 0,
                         [](int sum, std::uint64_t word) { return sum + std::popcount(word); });
}

HostPlan planFor(std::span<const RankCores> ranks) {
  int count = static_cast<int>(ranks.size()), onHost = count;
  int least = std::numeric_limits<int>::max(), lanes = kMostThreads;
  bool limited = false;
  std::vector<std::uint64_t> all;
  for (const RankCores& rank : ranks) {
    least = std::min(least, rank.cores);
    limited = limited || rank.cores != coresIn(rank.coreSet);
    all.resize(std::max(all.size(), rank.coreSet.size()));
    for (std::size_t i = 0; i < rank.coreSet.size(); ++i) all[i] |= rank.coreSet[i];
    if (rank.threads > 0) lanes = std::min(lanes, rank.threads);
    onHost = std::max(onHost, rank.hostRanks);
  }
  // Other groups' ranks work at the same time, on the same cores unless these are bound to some.
  const bool bound =
      std::any_of(ranks.begin(), ranks.end(), [&](const RankCores& rank) { return rank.coreSet != all; });
  if (limited || !bound) count = onHost;
  // Ranks may be bound to cores of their own. A cgroup's limit may be of one rank or of all together.
  const int cores = limited ? least : coresIn(all);
  return {std::clamp(std::min(cores / count, least), 1, lanes), count <= cores};
}

}  // namespace gloo_bypass::collectives
