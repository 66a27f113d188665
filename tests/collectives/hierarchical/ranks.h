// Ranks of a hierarchical executor as threads of one process, on hosts that the test chooses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/hierarchical/hierarchical_executor.h"
#include "collectives/memory/segment.h"
#include "tests/collectives/network/ranks.h"
#include "tests/support/memory_transport.h"

namespace gloo_bypass::collectives::test {

using HostOf = std::vector<int>;  // of each rank

class HostedRanks {
 public:
  explicit HostedRanks(HostOf hostOf, const HierarchicalOptions& options = {});

  Executor& operator[](int rank) { return *executors_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(hostOf_.size()); }
  // As SIGKILL: its host sees its lifeline end and, if the network notices, every rank the end of its channel.
  void kill(int rank, bool networkNotices);
  // Its executor leaves in good order.
  void leave(int rank) { executors_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::unique_ptr<Executor> memoryOf(int rank, const Hosts& hosts, std::function<Status()> elsewhere);

  const HostOf hostOf_;
  const std::shared_ptr<gloo_bypass::test::MemoryFabric> fabric_ = gloo_bypass::test::MemoryFabric::make();
  std::vector<std::shared_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Segment>> segments_;        // by host number
  std::vector<FileDescriptor> lifelines_, lifelineEnds_;  // of each rank: what peers read, and what closes
  std::vector<std::unique_ptr<Executor>> executors_;
};

}  // namespace gloo_bypass::collectives::test
