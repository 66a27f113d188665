// Collectives of a group with several ranks on some of its hosts: through memory within a host, over the network
// between hosts.
//
//   all-reduce     short, or hosts of unequal size: reduce to the leader in memory; among the leaders; broadcast in
//                  memory
//                  else: reduce-scatter in memory; each place among the ranks of that place; all-gather in memory
//   broadcast      short: among one rank a host; broadcast in memory
//   reduce         short: reduce in memory to one rank a host; among these
//   reduce-scatter in memory for each host's ranks; among the ranks of a place
//   all-gather     in memory; each place among the ranks of that place; in memory for each other host's ranks
//   barrier        in memory; among the ranks of a place (or: among the leaders; in memory again)
//   others         a barrier in memory; then the network alone, among all ranks. So are long broadcasts and reduces,
//                  where all ranks of a host have a part in what crosses, and reduce-scatter and all-gather among hosts
//                  of unequal size
//
// Every operation but a short broadcast begins with a round in memory, in which the ranks of a host compare what they
// call; then the hosts do. Long vectors take these steps in chunks that stay in the cache.
//
// Bits: memory adds in the order of ranks, the network in that of its algorithm for that number of hosts and that size.
// So the result depends on the placement of ranks, too.
//
// An error of one rank is that of all: whoever meets it tells all others over the network, and a rank that waits in
// memory hears it.
//
// Sources: the hierarchical all-reduce of Horovod and of MPI libraries (H. Zhu et al., Hierarchical collectives in
// MPICH2, 2009); rails as in NCCL.
//
// Thread: one at a time calls run(); abort() from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/executor.h"
#include "collectives/hierarchical/far_hosts.h"
#include "collectives/network/network_executor.h"
#include "collectives/schedule/hosts.h"

namespace gloo_bypass::collectives {

// The same at all ranks.
struct HierarchicalOptions {
  // Of a vector, or of a rank's blocks together. A rank sets at most as much aside.
  std::size_t chunkBytes = 2u << 20;
  std::size_t byLeadersBytes = 32 * 1024;  // shorter vectors are reduced by the leaders
  // The later a step of a chunk, the later it gives up: so the rank that everybody waits for is named, not one that
  // waits for it. More than the word of it takes from host to host: hosts are not far (far_hosts.h).
  Duration grace = std::chrono::milliseconds(50);
};

class HierarchicalExecutor final : public Executor {
 public:
  // Makes the executor of this host's ranks, by place, which names ranks as the group does. It must end a wait as soon
  // as `elsewhere` gives an error.
  using MakeMemory = std::function<Result<std::unique_ptr<Executor>>(std::function<Status()> elsewhere)>;
  // `network` connects all ranks, and has run nothing but longestRoundTrip(). Errors: makeMemory's.
  static Result<std::unique_ptr<HierarchicalExecutor>> make(Hosts hosts, std::unique_ptr<NetworkExecutor> network,
                                                            const MakeMemory& makeMemory,
                                                            const HierarchicalOptions& options = {});
  // Leaves in good order, within the host first.
  ~HierarchicalExecutor() override;

  Status run(const Call& call, TimePoint deadline) override;
  void abort() noexcept override;

 private:
  HierarchicalExecutor(Hosts hosts, std::unique_ptr<NetworkExecutor> network, const HierarchicalOptions& options)
      : hosts_(std::move(hosts)), network_(std::move(network)), options_(options), number_(kDistanceOperations) {}

  Status runKind(const Call& call);
  Status allReduceByLeaders(const Call& call);
  Status allReduceByPlaces(const Call& call);
  Status barrier();
  Status broadcast(const Call& call);
  Status reduce(const Call& call);
  Status reduceScatter(const Call& call);
  Status allGather(const Call& call);
  Status throughNetwork(const Call& call);

  bool isByLeaders(const Call& call) const;
  bool isLong(const Call& call) const;
  Call toLeader(std::span<const ConstBlock> input, std::span<const Block> output) const;
  int rank() const { return hosts_.mates()[static_cast<std::size_t>(hosts_.place())]; }
  bool alone() const { return hosts_.mates().size() == 1; }
  std::size_t chunkOf(const Call& call) const;  // elements
  // A step of the operation under way; its blocks are the caller's to set.
  Call step(Kind kind) const;
  template <typename F>
  Status inChunks(std::size_t count, std::size_t each, F&& f);
  Status within(Call step);
  // The step between hosts that is lost if the one in memory fails.
  std::uint64_t atStake() const { return isLater_ ? number_ : number_ + 1; }
  Status between(const Call& step, std::span<const int> ranks);
  std::byte* scratch(std::size_t bytes);

  const Hosts hosts_;
  const std::unique_ptr<NetworkExecutor> network_;
  std::unique_ptr<Executor> memory_;  // constant from make() on
  const HierarchicalOptions options_;
  std::vector<std::byte> scratch_;
  std::uint64_t number_;  // of the step between hosts; counted by those that take no part, too
  // Of the operation under way.
  Call call_;
  Description whole_;
  TimePoint deadline_ = kNever;
  bool isLater_ = false;         // a step between hosts has begun: number_ is its
  bool isAfterNetwork_ = false;  // one of this chunk has
  Status failed_;                // the first error; later calls get it again
};

}  // namespace gloo_bypass::collectives
