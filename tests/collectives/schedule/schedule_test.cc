// Every algorithm, for every number of ranks up to 17 and some beyond, with messages in random order.
#include "collectives/schedule/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

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

std::string run(const AlgorithmRow& row, int size, int root, std::uint64_t seed, const std::vector<int>& hostOf = {}) {
  const std::vector<Schedule> schedules = schedulesOf(row, size, root, hostOf);
  for (const Schedule& one : schedules) {
    if (one.parts != schedules[0].parts) return "ranks cut the data into different parts";
  }
  SymbolicNetwork network(row.kind, schedules, root, seed);
  std::string fault = network.run();
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
  for (const Algorithm algorithm : {Algorithm::kTwoLevelRing, Algorithm::kTwoLevelOneShot}) {
    const AlgorithmRow& row = *findAlgorithm(Kind::kAllReduce, algorithm);
    for (int size = 1; size <= 12; ++size) {
      for (int hosts = 1; hosts <= 4; ++hosts) {
        std::vector<int> hostOf;
        for (int rank = 0; rank < size; ++rank)
          hostOf.push_back(static_cast<int>(random() % static_cast<unsigned>(hosts)));
        ASSERT_EQ(run(row, size, 0, static_cast<std::uint64_t>(size), hostOf), "")
            << size << " ranks, " << hosts << " hosts";
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
