#include "tests/collectives/hierarchical/ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

#include "collectives/memory/flat_executor.h"

namespace gloo_bypass::collectives::test {

HostedRanks::HostedRanks(HostOf hostOf, const HierarchicalOptions& options) : hostOf_(std::move(hostOf)) {
  segments_.resize(hostOf_.size());
  for (int rank = 0; rank < size(); ++rank) {
    transports_.push_back(fabric_->makeTransport());
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    lifelines_.emplace_back(ends[0]);
    lifelineEnds_.emplace_back(ends[1]);
  }
  auto networks = connected(transports_, [this](NetworkOptions& network) { network.hostOf = hostOf_; });
  for (int rank = 0; rank < size(); ++rank) {
    auto& network = networks[static_cast<std::size_t>(rank)];
    const Hosts hosts(rank, hostOf_);
    auto made = HierarchicalExecutor::make(
        hosts, std::move(network),
        [&](std::function<Status()> elsewhere) -> Result<std::unique_ptr<Executor>> {
          return memoryOf(rank, hosts, std::move(elsewhere));
        },
        options);
    executors_.push_back(std::move(made).value());
  }
}

std::unique_ptr<Executor> HostedRanks::memoryOf(int rank, const Hosts& hosts, std::function<Status()> elsewhere) {
  const Layout layout = Layout::of(static_cast<int>(hosts.mates().size()), 1);
  auto& shared = segments_[static_cast<std::size_t>(hosts.mine())];
  if (shared == nullptr) {
    auto made = Segment::create(layout);
    if (!made) throw std::runtime_error(made.error().message);
    shared = std::make_unique<Segment>(std::move(made).value());
  }
  auto segment = Segment::open(FileDescriptor(::dup(shared->file().get())), layout);
  if (!segment) throw std::runtime_error(segment.error().message);
  std::vector<FileDescriptor> lifelines;
  for (const int mate : hosts.mates()) {
    lifelines.emplace_back(mate == rank ? -1 : ::dup(lifelines_[static_cast<std::size_t>(mate)].get()));
  }
  return std::make_unique<FlatExecutor>(std::move(segment).value(), FlatOptions{.rank = hosts.place(),
                                                                                .names = hosts.mates(),
                                                                                .patience = Patience::withSharedCore(),
                                                                                .atOnceBytes = 4096,
                                                                                .lifelines = std::move(lifelines),
                                                                                .ownLifeline = {},
                                                                                .elsewhere = std::move(elsewhere)});
}

void HostedRanks::kill(int rank, bool networkNotices) {
  lifelineEnds_[static_cast<std::size_t>(rank)].reset();
  if (networkNotices) fabric_->vanish(*transports_[static_cast<std::size_t>(rank)]);
}

}  // namespace gloo_bypass::collectives::test
