#include "tools/simulation/core/ring_bounds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tools/fabric/core/random.h"

namespace gloo_bypass::sim {
namespace {

constexpr int kDraws = 16;
constexpr int kMostRepetitions = 100;

Duration scaled(Duration duration, double factor) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(duration.count()) * factor));
}

// How often a segment of so many frames waits for a repetition: the unluckiest frame's losses in a row. The chance of
// at most k is (1 - loss^(k+1))^frames.
int repetitions(fabric::Random& random, double loss, std::uint64_t frames) {
  if (loss <= 0) return 0;
  const double drawn = random.uniform();
  int times = 0;
  for (double lostSoOften = loss; times < kMostRepetitions; lostSoOften *= loss, ++times) {
    if (std::pow(1 - lostSoOften, static_cast<double>(frames)) >= drawn) break;
  }
  return times;
}

// All ranks' iterations, one after the other: iteration i needs what iteration i-2 sent, and the edge free. `random`
// null: nothing is lost.
class IdealRing {
 public:
  IdealRing(const RingSchedule& schedule, std::span<const IdealEdge> edges, std::size_t groups,
            fabric::Random* random = nullptr)
      : schedule_(schedule),
        edges_(edges),
        groups_(groups),
        random_(random),
        now_(schedule.ranks()),
        edgeFree_(schedule.ranks()) {
    arrived_.fill(now_);
  }

  Duration run() {
    for (int half = 0; half < RingSchedule::kHalves; ++half) {
      for (int i = 0; i < schedule_.iterations() + RingSchedule::kAhead; ++i) iterate(half, i);
    }
    return *std::max_element(now_.begin(), now_.end());
  }

 private:
  void iterate(int half, int i) {
    std::vector<Duration>& arrived = arrived_[static_cast<std::size_t>(i % RingSchedule::kAhead)];
    if (i >= RingSchedule::kAhead) {
      for (std::size_t rank = 0; rank < now_.size(); ++rank) now_[rank] = std::max(now_[rank], arrived[rank]);
    }
    if (i >= schedule_.iterations()) return;
    for (std::size_t rank = 0; rank < now_.size(); ++rank) {
      const std::size_t bytes = schedule_.sendBytes(rank, half, i);
      Duration& there = arrived[schedule_.previous(rank)];
      there = Duration{0};
      if (bytes == 0) continue;
      const Duration sending = edges_[rank].serialisation(bytes) * static_cast<Duration::rep>(groups_);
      edgeFree_[rank] = std::max(edgeFree_[rank], now_[rank]) + sending;
      there = edgeFree_[rank] + edges_[rank].delay;
      if (random_ == nullptr) continue;
      there += edges_[rank].roundTrip * repetitions(*random_, edges_[rank].loss, edges_[rank].frames(bytes));
    }
  }

  const RingSchedule& schedule_;
  const std::span<const IdealEdge> edges_;
  const std::size_t groups_;
  fabric::Random* const random_;
  std::vector<Duration> now_, edgeFree_;
  std::array<std::vector<Duration>, RingSchedule::kAhead> arrived_;
};

// The slowest way through 2(N-1) edges that follow one another: twice round, but for two of them.
Duration slowestWay(std::span<const IdealEdge> edges) {
  Duration round{0}, least = kNever - TimePoint{};
  for (std::size_t i = 0; i < edges.size(); ++i) {
    round += edges[i].delay;
    least = std::min(least, edges[i].delay + edges[(i + 1) % edges.size()].delay);
  }
  return 2 * round - least;
}

}  // namespace

Duration IdealEdge::serialisation(std::uint64_t bytes) const {
  if (rateBitsPerSecond == 0) return Duration{0};
  const double bits = 8.0 * static_cast<double>(bytes + frames(bytes) * headerBytes);
  return Duration(static_cast<Duration::rep>(bits / static_cast<double>(rateBitsPerSecond) * 1e9));
}

std::uint64_t IdealEdge::frames(std::uint64_t bytes) const { return (bytes + payloadBytes - 1) / payloadBytes; }

RingBounds ringBounds(const RingSchedule& schedule, std::span<const IdealEdge> edges, std::size_t groups) {
  const auto ranks = static_cast<double>(schedule.ranks());
  const double rankShare = 2 * (ranks - 1) / ranks;
  RingBounds bounds;
  bounds.schedule = IdealRing(schedule, edges, groups).run();
  bounds.scheduleWithLoss = bounds.schedule;
  if (std::any_of(edges.begin(), edges.end(), [](const IdealEdge& edge) { return edge.loss > 0; })) {
    fabric::Random random(1);
    Duration sum{0};
    for (int i = 0; i < kDraws; ++i) sum += IdealRing(schedule, edges, groups, &random).run();
    bounds.scheduleWithLoss = sum / kDraws;
  }
  bounds.propagation = slowestWay(edges);
  Duration round{0}, payloadOnly{0};
  for (const IdealEdge& edge : edges) {
    round += edge.delay;
    const Duration all = edge.serialisation(schedule.bytes());
    bounds.serialisation = std::max(bounds.serialisation, scaled(all, rankShare * static_cast<double>(groups)));
    IdealEdge bare = edge;
    bare.headerBytes = 0;
    payloadOnly =
        std::max(payloadOnly, scaled(bare.serialisation(schedule.bytes()), rankShare * static_cast<double>(groups)));
  }
  bounds.pipeline = scaled(round, RingSchedule::kHalves * schedule.iterations() / (RingSchedule::kAhead * ranks));
  bounds.alphaBeta = scaled(round, 2 * (ranks - 1) / ranks) + payloadOnly;
  return bounds;
}

}  // namespace gloo_bypass::sim
