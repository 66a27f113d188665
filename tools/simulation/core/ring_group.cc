#include "tools/simulation/core/ring_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/fabric/core/random.h"
#include "transport/channel/channel_counters.h"

namespace gloo_bypass::sim {

RingLinks::RingLinks(Simulation& simulation, std::size_t ranks,
                     const std::function<Edge(std::size_t from, std::size_t to)>& edge) {
  const auto make = [&](std::size_t from, std::size_t to) {
    const Edge made = edge(from, to);
    return std::make_unique<Link>(simulation, made.model, made.seed);
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t previous = (rank + ranks - 1) % ranks;
    toPrevious_.push_back(make(rank, previous));
    if (ranks > 2) fromPrevious_.push_back(make(previous, rank));
  }
}

Link* RingLinks::find(std::size_t from, std::size_t to) const {
  if (from >= ranks() || to >= ranks()) return nullptr;
  if (to == (from + ranks() - 1) % ranks()) return toPrevious_[from].get();
  return from == (to + ranks() - 1) % ranks() ? fromPrevious_[to].get() : nullptr;
}

fabric::EdgeCounters RingLinks::counters() const {
  fabric::EdgeCounters sum;
  for (const auto& link : toPrevious_) sum += link->edgeCounters();
  for (const auto& link : fromPrevious_) sum += link->edgeCounters();
  return sum;
}

RingGroup::RingGroup(Simulation& simulation, const RingLinks& links, const RingSchedule& schedule,
                     const RingGroupSettings& settings)
    : simulation_(simulation),
      schedule_(schedule),
      settings_(settings),
      source_(schedule.segmentBytes()),
      sink_(schedule.segmentBytes()) {
  const std::size_t size = schedule.ranks();
  fabric::Random random(settings.seed);
  ends_.resize(size);
  previousEnds_.resize(size);
  for (std::size_t rank = size == 2 ? 1 : 0; rank < size; ++rank) {
    const std::size_t previous = schedule.previous(rank);
    const std::uint64_t id = random.next(), previousId = random.next();
    ends_[rank] = std::make_unique<Host>(simulation, settings.config, id, random.next());
    previousEnds_[rank] = std::make_unique<Host>(simulation, settings.config, previousId, random.next());
    ends_[rank]->attach(*links.find(rank, previous), *previousEnds_[rank]);
    previousEnds_[rank]->attach(*links.find(previous, rank), *ends_[rank]);
    hosts_.insert(hosts_.end(), {ends_[rank].get(), previousEnds_[rank].get()});
  }
  for (std::size_t rank = 0; rank < size; ++rank) {
    // With two ranks the one before is the one after, and there is one session.
    Host* const toPrevious = ends_[rank].get();
    Host* const toNext = previousEnds_[schedule.next(rank)].get();
    Host& out = toPrevious != nullptr ? *toPrevious : *toNext;
    Host& in = toNext != nullptr ? *toNext : *toPrevious;
    ranks_.push_back(std::make_unique<RingRank>(schedule, rank, out, in, source_, sink_));
  }
}

void RingGroup::connect() {
  for (std::size_t rank = 0; rank < ends_.size(); ++rank) {
    if (ends_[rank] == nullptr) continue;
    ends_[rank]->connect(*previousEnds_[rank], settings_.maxDatagramBytes);
    previousEnds_[rank]->connect(*ends_[rank], settings_.maxDatagramBytes);
  }
}

bool RingGroup::connected() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](const Host* host) { return host->session().state() == SessionState::kEstablished; });
}

void RingGroup::start(std::function<void()> onDone) {
  onDone_ = std::move(onDone);
  startNext();
}

void RingGroup::startNext() {
  startedAt_ = simulation_.now();
  ranksRunning_ = ranks_.size();
  for (const auto& rank : ranks_) rank->start([this] { onRankDone(); });
}

void RingGroup::onRankDone() {
  if (--ranksRunning_ > 0) return;
  times_.push_back(simulation_.now() - startedAt_);
  if (!done() || goesOn_) return startNext();
  if (onDone_) onDone_();
}

void RingGroup::goOn() {
  goesOn_ = true;
  startNext();
}

std::uint64_t RingGroup::receivedBytes() const {
  std::uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->receivedBytes();
  return sum;
}

double RingGroup::progress() const {
  const double each = 2.0 * static_cast<double>(schedule_.ranks() - 1) * static_cast<double>(schedule_.bytes());
  return static_cast<double>(receivedBytes()) / (each * settings_.allReduces);
}

ChannelCounters RingGroup::counters() const {
  ChannelCounters sum;
  for (const Host* const host : hosts_) sum += host->session().counters();
  return sum;
}

std::size_t RingGroup::maxMemoryBytes() const {
  std::size_t most = 0;
  for (const Host* const host : hosts_) most = std::max(most, host->maxMemoryBytes());
  return most;
}

std::string RingGroup::error() const {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank]->error().empty()) return fmt::format("rank {}: {}", rank, ranks_[rank]->error());
  }
  return {};
}

}  // namespace gloo_bypass::sim
