// Making a group: every rank publishes what the others must know, reads what they published, and all come to the same
// conclusion.
#include "collectives/group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "collectives/card.h"
#include "collectives/hierarchical/far_hosts.h"
#include "collectives/hierarchical/hierarchical_executor.h"
#include "collectives/link.h"
#include "collectives/memory/flat_executor.h"
#include "collectives/memory/host_meeting.h"
#include "collectives/memory/host_plan.h"
#include "collectives/memory/memory_transport.h"
#include "collectives/messenger.h"
#include "collectives/network/network_executor.h"
#include "collectives/ordered_group.h"
#include "collectives/stoppable_rendezvous.h"
#include "transport/base/printable.h"
#include "transport/process/named_transport.h"
#include "transport/progress/core_use.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

// The largest group of this process on its host. A part of a group shares the host's cores with the other parts.
std::atomic<int> mostOnHost{1};

// torchrun says how many ranks it has started, before the first group is there. A rank that is bound to some of the
// host's cores shares them with ranks that it does not know.
int ranksOnHost(std::span<const std::uint64_t> cores) {
  if (coresIn(cores) < sysconf(_SC_NPROCESSORS_ONLN)) return 1;
  const char* const started = std::getenv("LOCAL_WORLD_SIZE");
  return std::max(mostOnHost.load(), std::clamp(started == nullptr ? 1 : std::atoi(started), 1, 1 << 16));
}

Error refused(ErrorCode code, std::string text) { return {ErrorScope::kSession, code, std::move(text)}; }

Result<std::vector<Card>> exchange(const GroupOptions& options, const Card& own, Rendezvous& rendezvous,
                                   TimePoint deadline) {
  const auto key = [](int rank) { return fmt::format("gloo_bypass/rank/{}", rank); };
  if (Status status = rendezvous.set(key(options.rank), encode(own)); !status) return status;
  std::vector<Card> cards;
  for (int rank = 0; rank < options.size; ++rank) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - monotonicNow());
    const auto text = rendezvous.get(key(rank), std::max(left, std::chrono::milliseconds(1)));
    if (!text) {
      return refused(text.error().code,
                     fmt::format("rank {} did not come to the group: {}", rank, text.error().message));
    }
    const auto card = decodeCard(text.value());
    if (!card) {
      return refused(ErrorCode::kPeerViolatedProtocol, fmt::format("what rank {} published cannot be read", rank));
    }
    if (card->protocol != own.protocol) {
      return refused(ErrorCode::kConfiguration,
                     fmt::format("rank {} has collectives of version {}, rank {} of version {}: use one gloo_bypass",
                                 options.rank, own.protocol, rank, card->protocol));
    }
    if (card->transport != own.transport) {
      return refused(ErrorCode::kConfiguration,
                     fmt::format("rank {} uses the transport {}, rank {} uses {}: set GLOO_DEVICE_TRANSPORT and "
                                 "GLOO_BYPASS_LINK alike",
                                 options.rank, own.transport, rank, printable(card->transport)));
    }
    cards.push_back(*card);
  }
  return cards;
}

// Rank 0's choices hold for all.
Result<ChoiceTable> commonChoices(std::span<const Card> cards) {
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    if (cards[rank].choices.empty() || cards[rank].choices == cards[0].choices) continue;
    return refused(ErrorCode::kConfiguration,
                   fmt::format("rank {} chooses other algorithms than rank 0: set GLOO_BYPASS_CHOICES, "
                               "GLOO_BYPASS_ALGORITHM and GLOO_BYPASS_SUM_ORDER alike, or at rank 0 only",
                               rank));
  }
  if (cards[0].choices.empty()) return ChoiceTable();
  auto choices = ChoiceTable::parse(cards[0].choices);
  if (!choices) {
    return refused(ErrorCode::kPeerViolatedProtocol,
                   fmt::format("what rank 0 published cannot be read: {}", choices.error().message));
  }
  return choices;
}

// `ranks` are those of this host, and this one has the place `own` among them.
Result<std::unique_ptr<FlatExecutor>> meet(const std::vector<int>& ranks, int own, std::span<const Card> cards,
                                           MeetingPlace place, TimePoint deadline,
                                           std::function<Status()> elsewhere = {}) {
  std::vector<Card> mates;
  std::vector<RankCores> cores;
  for (const int rank : ranks) {
    mates.push_back(cards[static_cast<std::size_t>(rank)]);
    cores.push_back(mates.back().cores);
  }
  const HostPlan plan = planFor(cores);
  const int lanes = mates.size() == 1 ? 1 : plan.lanes;  // one alone only copies
  const Layout layout = Layout::of(static_cast<int>(mates.size()), lanes);
  HostMeeting meeting(own, ranks, layout, deadline);
  auto share = own == 0 ? meeting.lead(std::move(place)) : meeting.come(mates[0].place, mates[0].secret);
  if (!share) return share.error();
  HostShare home = std::move(share).value();
  home.segment.touch(own);
  // By parts costs a second wait: soon over where ranks have cores of their own, else several switches of threads.
  const std::size_t atOnceBytes = (plan.ownCores ? 64u : 256u) * 1024 / mates.size();
  return std::make_unique<FlatExecutor>(
      std::move(home.segment),
      FlatOptions{.rank = own,
                  .names = ranks,
                  .patience = plan.ownCores ? Patience::withOwnCore() : Patience::withSharedCore(),
                  .atOnceBytes = atOnceBytes,
                  .lifelines = std::move(home.lifelines),
                  .ownLifeline = std::move(home.ownLifeline),
                  .elsewhere = std::move(elsewhere)});
}

std::string threadsEach(int lanes) { return fmt::format("{} thread{} each", lanes, lanes == 1 ? "" : "s"); }

// Ranks of one host, over its memory; their messages go over channels of `link`.
Result<std::unique_ptr<Group>> overMemory(const GroupOptions& options, const Link& link, std::span<const Card> cards,
                                          MeetingPlace place, std::shared_ptr<Rendezvous> rendezvous,
                                          TimePoint deadline) {
  auto traffic = acquireMemoryTransport();
  if (!traffic) return traffic.error();
  std::vector<int> ranks(cards.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  auto executor = meet(ranks, options.rank, cards, std::move(place), deadline);
  if (!executor) return executor.error();
  FlatExecutor& flat = *executor.value();
  const NetworkOptions network{
      .rank = options.rank, .size = options.size, .timeout = options.timeout, .silence = options.timeout};
  const auto connect = [name = link.transport, network, rendezvous, interface = options.interface,
                        &flat](const std::function<Status()>& stopped) -> Result<std::unique_ptr<NetworkExecutor>> {
    auto transport = acquireTransport(name, interface);
    if (!transport) return transport.error();
    // A rank that has left does not come to connect any more.
    StoppableRendezvous store(*rendezvous, [&] {
      Status status = stopped();
      return status ? flat.endOfGroup() : status;
    });
    return NetworkExecutor::connect(network, std::move(transport).value(), store);
  };
  GroupPlace is{.rank = options.rank,
                .size = options.size,
                .timeout = options.timeout,
                .carriers = {"MEMORY"},
                .description = fmt::format("{} ranks of one host: flat shared memory, {}", options.size,
                                           threadsEach(flat.lanes()))};
  std::unique_ptr<Messenger> messenger;
  if (options.size == 1) {
    messenger = std::make_unique<NoMessenger>();
  } else {
    messenger = std::make_unique<LateMessenger>(flat.messagesWanted(), connect);
  }
  return std::unique_ptr<Group>(
      std::make_unique<OrderedGroup>(std::move(is), std::move(executor).value(), std::move(messenger)));
}

Result<std::unique_ptr<NetworkExecutor>> connectAll(const GroupOptions& options, const Link& link,
                                                    std::vector<int> hostOf, ChoiceTable choices,
                                                    Rendezvous& rendezvous, TimePoint deadline) {
  auto transport = acquireTransport(link.transport, options.interface);
  if (!transport) return transport.error();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - monotonicNow());
  const NetworkOptions network{.rank = options.rank,
                               .size = options.size,
                               .timeout = std::max(left, std::chrono::milliseconds(1)),
                               .silence = options.timeout,
                               .hostOf = std::move(hostOf),
                               .choices = std::move(choices)};
  return NetworkExecutor::connect(network, std::move(transport).value(), rendezvous);
}

std::unique_ptr<Group> overChannels(const GroupOptions& options, const Link& link,
                                    std::unique_ptr<NetworkExecutor> channels, std::string description) {
  GroupPlace is{.rank = options.rank,
                .size = options.size,
                .timeout = options.timeout,
                .carriers = {link.transport},
                .description = std::move(description)};
  auto messenger = std::make_unique<NetworkMessenger>(*channels);
  return std::make_unique<OrderedGroup>(std::move(is), std::move(channels), std::move(messenger));
}

// Over memory within each host, and over channels between hosts. Channels connect all ranks: some operations need
// them, and so do messages and the news of a failure. Hosts that are far from each other use nothing else.
Result<std::unique_ptr<Group>> overHosts(const GroupOptions& options, const Link& link, std::span<const Card> cards,
                                         const std::vector<int>& hostOf, ChoiceTable choices, MeetingPlace place,
                                         Rendezvous& rendezvous, TimePoint deadline) {
  auto traffic = acquireMemoryTransport();
  if (!traffic) return traffic.error();
  auto channels = connectAll(options, link, hostOf, std::move(choices), rendezvous, deadline);
  if (!channels) return channels.error();
  NetworkExecutor& network = *channels.value();
  const Hosts hosts(options.rank, hostOf);
  const auto roundTrip = longestRoundTrip(hosts, network, deadline);
  if (!roundTrip) return roundTrip.error();
  if (roundTrip.value() >= kFarAway) {
    std::string description =
        fmt::format("{} hosts with round trips of up to {:.0f} ms: {}", hosts.count(),
                    std::chrono::duration<double, std::milli>(roundTrip.value()).count(), network.describe());
    return overChannels(options, link, std::move(channels).value(), std::move(description));
  }
  int lanes = 0;
  const auto meetMates = [&](std::function<Status()> elsewhere) -> Result<std::unique_ptr<Executor>> {
    auto memory = meet(hosts.mates(), hosts.place(), cards, std::move(place), deadline, std::move(elsewhere));
    if (!memory) return memory.error();
    lanes = memory.value()->lanes();
    return std::unique_ptr<Executor>(std::move(memory).value());
  };
  auto executor = HierarchicalExecutor::make(hosts, std::move(channels).value(), meetMates);
  if (!executor) return executor.error();
  GroupPlace is{
      .rank = options.rank,
      .size = options.size,
      .timeout = options.timeout,
      .carriers = {"MEMORY", link.transport},
      .description = fmt::format("{} hosts: flat shared memory within each, {} here, {}; {} between them",
                                 hosts.count(), hosts.mates().size(), threadsEach(lanes), network.describe())};
  auto messenger = std::make_unique<NetworkMessenger>(network);
  return std::unique_ptr<Group>(
      std::make_unique<OrderedGroup>(std::move(is), std::move(executor).value(), std::move(messenger)));
}

}  // namespace

Result<std::unique_ptr<Group>> Group::make(const GroupOptions& options, std::shared_ptr<Rendezvous> rendezvous) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return refused(ErrorCode::kInvalidArgument,
                   fmt::format("there is no rank {} in a group of {}", options.rank, options.size));
  }
  const TimePoint deadline = monotonicNow() + options.timeout;
  const auto link = Link::named(options.transport);
  if (!link) return link.error();
  const ChoiceTable choices = options.choices.value_or(link.value().choices);
  // Ranks meet for memory only: other groups need no socket of the host.
  const bool alone = options.size == 1;
  auto place = alone || link.value().hasMemory ? MeetingPlace::open() : MeetingPlace();
  if (!place) return place.error();
  const std::vector<std::uint64_t> cores = coreSet();
  const Card own{.cores = {usableCores(), cores, link.value().threads, ranksOnHost(cores)},
                 .transport = link.value().transport + (link.value().hasMemory ? " with memory links" : ""),
                 .host = options.host.empty() ? hostIdentity() : options.host,
                 .place = place.value().name(),
                 .choices = choices == ChoiceTable() ? "" : choices.text(),
                 .secret = place.value().secret()};
  const auto cards = exchange(options, own, *rendezvous, deadline);
  if (!cards) return cards.error();
  auto common = commonChoices(cards.value());
  if (!common) return common.error();
  std::vector<std::string> identities;
  for (const Card& card : cards.value()) identities.push_back(card.host);
  const std::vector<int> hostOf = hostsOf(identities);
  const Hosts hosts(options.rank, hostOf);
  const int mates = static_cast<int>(hosts.mates().size());
  for (int known = mostOnHost; known < mates && !mostOnHost.compare_exchange_weak(known, mates);) {
  }
  // Not if every rank is alone on its host.
  const bool memoryServes = link.value().hasMemory && hosts.mostRanks() > 1 && hosts.mostRanks() <= Layout::kMostRanks;
  if (alone || (memoryServes && hosts.count() == 1)) {
    return overMemory(options, link.value(), cards.value(), std::move(place).value(), std::move(rendezvous), deadline);
  }
  // A host's ranks would be added first.
  if (memoryServes && !common.value().keepsOrderOfRanks()) {
    return overHosts(options, link.value(), cards.value(), hostOf, std::move(common).value(), std::move(place).value(),
                     *rendezvous, deadline);
  }
  auto channels = connectAll(options, link.value(), hostOf, std::move(common).value(), *rendezvous, deadline);
  if (!channels) return channels.error();
  std::string description = channels.value()->describe();
  return overChannels(options, link.value(), std::move(channels).value(), std::move(description));
}

}  // namespace gloo_bypass::collectives
