// Every algorithm, for every number of ranks up to 17 and some beyond, with messages in random order.
#include "collectives/schedule/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/catalogue.h"
#include "tests/collectives/schedule/symbolic_network.h"

namespace gloo_bypass::collectives {
namespace {

using test::SymbolicNetwork;
using test::Value;

std::vector<int> sizes() {
  std::vector<int> all;
  for (int size = 1; size <= 17; ++size) all.push_back(size);
  all.insert(all.end(), {24, 31, 32, 33});
  return all;
}

std::vector<Schedule> schedulesOf(const AlgorithmRow& row, int size, int root, const std::vector<int>& hostOf = {}) {
  std::vector<Schedule> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(row.make({rank, size, root, hostOf}));
  return all;
}

bool hasRoot(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kBroadcast || kind == Kind::kScatter;
}
bool isOfBlocks(Kind kind) {
  return kind == Kind::kReduceScatter || kind == Kind::kAllGather || kind == Kind::kGather || kind == Kind::kScatter ||
         kind == Kind::kAllToAll;
}
bool adds(Kind kind) { return kind <= Kind::kReduceScatter; }

// The rank that the part comes from, where nothing is added.
int ownerOf(Kind kind, int size, int root, int part) {
  if (kind == Kind::kBroadcast || kind == Kind::kScatter) return root;
  return kind == Kind::kAllToAll ? part / size : part;
}

bool isOutput(Kind kind, int size, int root, int rank, int part) {
  switch (kind) {
    case Kind::kReduce:
    case Kind::kGather:
      return rank == root;
    case Kind::kReduceScatter:
    case Kind::kScatter:
      return part == rank;
    case Kind::kAllToAll:
      return part % size == rank;
    default:
      return true;
  }
}

// What every rank should hold in the end; empty: it does.
std::string faultOf(const SymbolicNetwork& network, const AlgorithmRow& row, int size, int root, int parts) {
  for (int part = 0; part < parts; ++part) {
    const Value* first = nullptr;
    for (int rank = 0; rank < size; ++rank) {
      if (!isOutput(row.kind, size, root, rank, part)) continue;
      const Value& value = network.value(rank, part);
      if (first == nullptr) first = &value;
      if (value.sum != first->sum) return fmt::format("part {}: {} and {}", part, value.sum, first->sum);
      for (int from = 0; from < size; ++from) {
        const int expected = adds(row.kind)               ? 1
                             : row.kind == Kind::kBarrier ? -1
                                                          : from == ownerOf(row.kind, size, root, part);
        const int is = value.sum.empty() ? 0 : value.contributions[static_cast<std::size_t>(from)];
        if (expected >= 0 ? is != expected : is < 1) {
          return fmt::format("rank {} has rank {} {} times in part {}", rank, from, is, part);
        }
      }
    }
  }
  return "";
}

// An executor keeps what a step has received in one place: in the rank's output, or, where that wants none, in memory
// of that step. A step sends from one place, and of blocks (data_layout.h) one part.
std::string faultOfPlaces(const AlgorithmRow& row, const std::vector<Schedule>& schedules, int root) {
  const int size = static_cast<int>(schedules.size());
  constexpr int kInput = -2, kOutput = -1;
  for (int rank = 0; rank < size; ++rank) {
    const Schedule& own = schedules[static_cast<std::size_t>(rank)];
    std::vector<int> places(static_cast<std::size_t>(own.parts), kInput);
    for (std::size_t i = 0; i < own.steps.size(); ++i) {
      const Step& step = own.steps[i];
      if (isOfBlocks(row.kind) && step.parts.size() != 1)
        return fmt::format("rank {} takes several blocks in one step", rank);
      for (int part = step.parts.begin; part < step.parts.end; ++part) {
        int& place = places[static_cast<std::size_t>(part)];
        if (step.action == Action::kSend) {
          if (place != places[static_cast<std::size_t>(step.parts.begin)]) {
            return fmt::format("rank {} sends parts of several places in round {}", rank, step.round);
          }
        } else {
          place = isOutput(row.kind, size, root, rank, part) ? kOutput : static_cast<int>(i);
        }
      }
    }
  }
  return "";
}

std::string run(const AlgorithmRow& row, int size, int root, std::uint64_t seed, const std::vector<int>& hostOf = {}) {
  const std::vector<Schedule> schedules = schedulesOf(row, size, root, hostOf);
  for (const Schedule& one : schedules) {
    if (one.parts != schedules[0].parts) return "ranks cut the data into different parts";
  }
  SymbolicNetwork network(row.kind, schedules, root, seed);
  std::string fault = faultOfPlaces(row, schedules, root);
  if (fault.empty()) fault = network.run();
  return fault.empty() ? faultOf(network, row, size, root, schedules[0].parts) : fault;
}

TEST(Schedule_EveryAlgorithm, AnyOrderOfArrival_EndsWithEachRankOnce) {
  for (const AlgorithmRow& row : algorithms()) {
    for (const int size : sizes()) {
      for (const int root : hasRoot(row.kind) ? std::vector<int>{0, size / 2, size - 1} : std::vector<int>{0}) {
        for (std::uint64_t seed = 1; seed <= (size <= 9 ? 20u : 3u); ++seed) {
          ASSERT_EQ(run(row, size, root, seed), "") << nameOf(row.kind) << " " << nameOf(row.algorithm) << ", " << size
                                                    << " ranks, root " << root << ", seed " << seed;
        }
      }
    }
  }
}

TEST(Schedule_TwoLevel, AnyHosts_EndsWithEachRankOnce) {
  std::mt19937 random(7);
  for (const AlgorithmRow& row : algorithms()) {
    if (!isTwoLevel(row.algorithm)) continue;
    for (int size = 1; size <= 12; ++size) {
      for (int hosts = 1; hosts <= 6; ++hosts) {
        std::vector<int> hostOf;
        for (int rank = 0; rank < size; ++rank)
          hostOf.push_back(static_cast<int>(random() % static_cast<unsigned>(hosts)));
        for (int root = 0; root < (hasRoot(row.kind) ? size : 1); ++root) {
          ASSERT_EQ(run(row, size, root, random(), hostOf), "")
              << nameOf(row.kind) << " " << nameOf(row.algorithm) << ", " << size << " ranks, root " << root
              << ", hosts " << fmt::format("{}", fmt::join(hostOf, " "));
        }
      }
    }
  }
}

TEST(Schedule_RankOrder, WhereARowSaysSo_SumsAreInRankOrder) {
  constexpr int kSize = 5;
  int seen = 0;
  for (const AlgorithmRow& row : algorithms()) {
    if (!row.addsInOrder || !adds(row.kind)) continue;
    const std::vector<Schedule> schedules = schedulesOf(row, kSize, 0);
    SymbolicNetwork network(row.kind, schedules, 0, 1);
    ASSERT_EQ(network.run(), "");
    for (int part = 0; part < schedules[0].parts; ++part) {
      for (int rank = 0; rank < kSize; ++rank) {
        if (!isOutput(row.kind, kSize, 0, rank, part)) continue;
        EXPECT_EQ(network.value(rank, part).sum, "((((0+1)+2)+3)+4)")
            << nameOf(row.kind) << " " << nameOf(row.algorithm);
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, kSize);
}

// The network must find a wrong schedule, or the tests above prove nothing.
TEST(SymbolicNetwork_WrongSchedule, IsFound) {
  const auto faultWith = [](auto&& change) {
    std::vector<Schedule> schedules = schedulesOf(*findAlgorithm(Kind::kAllReduce, Algorithm::kRing), 3, 0);
    change(schedules);
    return SymbolicNetwork(Kind::kAllReduce, schedules, 0, 1).run();
  };
  EXPECT_EQ(faultWith([](auto&) {}), "");
  EXPECT_NE(faultWith([](auto& all) { all[1].steps.pop_back(); }), "");
  EXPECT_NE(faultWith([](auto& all) { all[1].steps[0].parts = {1, 2}; }), "");
  EXPECT_NE(faultWith([](auto& all) { all[2].steps[2].waitsFor++; }), "");
  EXPECT_NE(faultWith([](auto& all) { all[2].steps.back().waitsFor++; }), "");
  EXPECT_NE(faultWith([](auto& all) { all[0].steps[1].peers[0] = 1; }), "");
}

TEST(Schedule_Traffic, Rings_SendTheLeastAndOnePeerAtATime) {
  for (const int size : {2, 5, 8}) {
    for (int rank = 0; rank < size; ++rank) {
      int sent = 0;
      for (const Step& step : ringAllReduce({rank, size}).steps) {
        if (step.action != Action::kSend) continue;
        sent += step.parts.size();
        EXPECT_EQ(step.peers[0], (rank + 1) % size);
      }
      EXPECT_EQ(sent, 2 * (size - 1));
    }
  }
}

// What crosses between hosts.
struct BetweenHosts {
  double mostSent = 0, mostReceived = 0;  // by one host, in vectors (or all blocks together)
  int trips = 0;                          // how often what a rank ends with has crossed, one after the other
};

BetweenHosts betweenHosts(const AlgorithmRow& row, const std::vector<int>& hostOf, int root) {
  const int size = static_cast<int>(hostOf.size());
  const std::vector<Schedule> schedules = schedulesOf(row, size, root, hostOf);
  const double onePart = 1.0 / schedules[0].parts;
  const auto host = [&](int rank) { return hostOf[static_cast<std::size_t>(rank)]; };
  BetweenHosts found;
  std::map<int, double> sent, received;            // by host
  std::map<std::tuple<int, int, int>, int> under;  // trips of a message: from, to, number
  std::map<std::pair<int, int>, int> trips;        // of what a rank holds of a part
  int rounds = 0;
  for (const Schedule& one : schedules) rounds = std::max(rounds, one.steps.empty() ? 0 : one.steps.back().round + 1);
  const auto send = [&](int rank, const Step& step) {
    const int to = step.peers[0], crosses = host(rank) != host(to) ? 1 : 0;
    int& message = under[{rank, to, step.numbers[0]}];
    for (int part = step.parts.begin; part < step.parts.end; ++part) {
      message = std::max(message, trips[{rank, part}] + crosses);
      sent[host(rank)] += crosses * onePart;
      received[host(to)] += crosses * onePart;
    }
  };
  const auto receive = [&](int rank, const Step& step) {
    for (std::size_t i = 0; i < step.peers.size(); ++i) {
      if (step.peers[i] == rank) continue;
      const int message = under.at({step.peers[i], rank, step.numbers[i]});
      for (int part = step.parts.begin; part < step.parts.end; ++part) {
        trips[{rank, part}] = std::max(trips[{rank, part}], message);
      }
    }
  };
  for (int round = 0; round < rounds; ++round) {
    for (const bool sends : {true, false}) {
      for (int rank = 0; rank < size; ++rank) {
        for (const Step& step : schedules[static_cast<std::size_t>(rank)].steps) {
          if (step.round != round || (step.action == Action::kSend) != sends) continue;
          sends ? send(rank, step) : receive(rank, step);
        }
      }
    }
  }
  for (const auto& [one, bytes] : sent) found.mostSent = std::max(found.mostSent, bytes);
  for (const auto& [one, bytes] : received) found.mostReceived = std::max(found.mostReceived, bytes);
  for (const auto& [one, count] : trips) found.trips = std::max(found.trips, count);
  return found;
}

TEST(Schedule_Traffic, Rails_CrossBetweenHostsOnceEachWay) {
  for (const std::vector<int>& hostOf :
       {std::vector<int>{0, 0, 0, 1, 1, 1}, std::vector<int>{0, 1, 0, 1, 2, 2, 2}, std::vector<int>{0, 0, 0, 0, 1},
        std::vector<int>{4, 0, 1, 2, 3, 0, 1, 2, 3, 4}, std::vector<int>{0, 0, 0, 1, 1, 2, 3, 4}}) {
    const int hosts = *std::max_element(hostOf.begin(), hostOf.end()) + 1;
    double most = 0;  // of the blocks, on one host
    for (int host = 0; host < hosts; ++host) {
      const auto ranks = static_cast<double>(std::count(hostOf.begin(), hostOf.end(), host));
      most = std::max(most, ranks / static_cast<double>(hostOf.size()));
    }
    const double toAll = std::min(hosts - 1, 2), sums = 2.0 * (hosts - 1) / hosts;
    struct Bound {
      Kind kind;
      double sent, received;
      int trips;
    };
    const int forwarded = hosts > 3 ? 2 : 1;
    for (const Bound& bound :
         {Bound{Kind::kAllReduce, sums, sums, 2}, Bound{Kind::kReduceScatter, 1, most * (hosts - 1), 1},
          Bound{Kind::kAllGather, most * (hosts - 1), 1, 1}, Bound{Kind::kBroadcast, toAll, 1, forwarded},
          Bound{Kind::kReduce, 1, toAll, forwarded}, Bound{Kind::kBarrier, 1e9, 1e9, 1}}) {
      const BetweenHosts found = betweenHosts(*findAlgorithm(bound.kind, Algorithm::kTwoLevelRails), hostOf, 1);
      SCOPED_TRACE(fmt::format("{} on {}", nameOf(bound.kind), fmt::join(hostOf, " ")));
      EXPECT_LE(found.mostSent, bound.sent + 1e-9);
      EXPECT_LE(found.mostReceived, bound.received + 1e-9);
      EXPECT_EQ(found.trips, bound.trips);
    }
  }
  // The measure itself: a ring crosses more often.
  const BetweenHosts ring = betweenHosts(*findAlgorithm(Kind::kAllReduce, Algorithm::kRing), {0, 0, 1, 1}, 0);
  EXPECT_GT(ring.trips, 2);
  EXPECT_GT(ring.mostSent, 1.4);
}

TEST(Schedule_Traffic, DoubleTree_NoRankSendsMoreThanTwiceTheVector) {
  for (const int size : sizes()) {
    for (int rank = 0; rank < size; ++rank) {
      int sent = 0;
      for (const Step& step : doubleTreeAllReduce({rank, size}).steps) sent += step.action == Action::kSend;
      EXPECT_LE(sent, 4 + 1) << rank << " of " << size;  // parts of half a vector; an inner node that is a root, too
    }
  }
}

}  // namespace
}  // namespace gloo_bypass::collectives
