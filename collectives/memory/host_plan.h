// How many threads each rank of a host uses, and whether the ranks have cores of their own: the same at all of them,
// from what each has published. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gloo_bypass::collectives {

// Copies and sums of one rank are not faster with more threads.
inline constexpr int kMostThreads = 8;

// What a rank says of itself.
struct RankCores {
  int cores = 1;                       // that it may use: by its affinity mask and its cgroup's limit
  std::vector<std::uint64_t> coreSet;  // its mask, as transport/progress/core_use.h has it
  int threads = 0;                     // at most, by its settings; 0: nothing is set
  int hostRanks = 1;                   // of the program on its host, as far as it knows: of other groups, too
};

struct HostPlan {
  int lanes = 1;
  bool ownCores = true;
};

// Of a mask.
int coresIn(std::span<const std::uint64_t> coreSet);

HostPlan planFor(std::span<const RankCores> ranks);

}  // namespace gloo_bypass::collectives
