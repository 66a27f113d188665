#include "collectives/hierarchical/far_hosts.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace gloo_bypass::collectives {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Result<Duration> longestRoundTrip(const Hosts& hosts, NetworkExecutor& network, TimePoint deadline) {
  const auto count = static_cast<std::size_t>(hosts.count()), mine = static_cast<std::size_t>(hosts.mine());
  std::vector<double> paths(count * count, kUnknown);  // from host to host
  const ConstBlock own{reinterpret_cast<const std::byte*>(paths.data()), paths.size()};
  const Block ofAll{reinterpret_cast<std::byte*>(paths.data()), paths.size()};
  const Call minimum{.kind = Kind::kAllReduce,
                     .type = ElementType::kFloat64,
                     .reduction = Reduction::kMin,
                     .inputs = {&own, 1},
                     .outputs = {&ofAll, 1}};
  double longest = 0;
  for (std::uint64_t number = 1; number < kDistanceOperations; number += 2) {
    // A path is measured anew by what crosses it.
    if (Status status = network.runAmong({.kind = Kind::kBarrier}, {hosts.everyone(), number}, deadline); !status) {
      return status.error();
    }
    for (std::size_t other = 0; other < count; ++other) {
      if (other == mine) continue;
      const Duration shortest = network.shortestPath(hosts.ranks(static_cast<int>(other)));
      if (shortest != Duration::max()) paths[mine * count + other] = seconds(shortest);
    }
    if (Status status = network.runAmong(minimum, {hosts.everyone(), number + 1}, deadline); !status) {
      return status.error();
    }
    longest = 0;
    for (std::size_t one = 0; one < count; ++one) {
      for (std::size_t other = 0; other < one; ++other) {
        const double path = std::min(paths[one * count + other], paths[other * count + one]);
        if (path != kUnknown) longest = std::max(longest, path);
      }
    }
    if (longest < seconds(kFarAway)) break;
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(longest));
}

}  // namespace gloo_bypass::collectives
