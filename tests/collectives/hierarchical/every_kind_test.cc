// Every kind of operation, on hosts with as many ranks and with others, however ranks are placed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/collectives/hierarchical/ranks.h"

namespace gloo_bypass::collectives {
namespace {

using test::Buffers;
using test::Case;
using test::casesOf;
using test::HostedRanks;
using test::HostOf;
using test::runsRight;

class Hierarchical_EveryKind : public ::testing::TestWithParam<HostOf> {};
INSTANTIATE_TEST_SUITE_P(Placement, Hierarchical_EveryKind,
                         ::testing::Values(HostOf{0, 0, 1, 1},              // 2 + 2
                                           HostOf{0, 1, 0, 1},              // 2 + 2, in turn
                                           HostOf{1, 0, 0, 1},              // 2 + 2, the host's second rank first
                                           HostOf{0, 0, 0, 1},              // 3 + 1
                                           HostOf{0, 1, 1, 1},              // 1 + 3
                                           HostOf{0, 1, 2, 2},              // 1 + 1 + 2
                                           HostOf{0, 1, 0, 2, 1},           // 2 + 2 + 1
                                           HostOf{2, 1, 0, 1, 2, 0},        // 2 + 2 + 2
                                           HostOf{0, 0, 1, 1, 2, 2, 3, 3},  // 2 + 2 + 2 + 2
                                           HostOf{0, 0, 0, 1, 1, 1}));      // 3 + 3

constexpr HierarchicalOptions kSmallChunks{.chunkBytes = 4096, .byLeadersBytes = 1024};

TEST_P(Hierarchical_EveryKind, AnyCountAndRoot_GivesThePlainResult) {
  for (const HierarchicalOptions& options : {HierarchicalOptions(), kSmallChunks}) {
    HostedRanks ranks(GetParam(), options);
    test::inThreads(ranks.size(), [&](int rank) {
      for (int k = 0; k < kKinds; ++k) {
        for (const Case& c : casesOf(static_cast<Kind>(k), ranks.size())) {
          ASSERT_TRUE(runsRight(ranks[rank], c, rank, Reduction::kSum));
        }
      }
    });
    if (HasFailure()) return;
  }
}

TEST_P(Hierarchical_EveryKind, SeveralChunksAndEveryRoot_GiveThePlainResult) {
  HostedRanks ranks(GetParam(), kSmallChunks);
  test::inThreads(ranks.size(), [&](int rank) {
    for (int k = 0; k < kKinds; ++k) {
      for (int root = 0; root < ranks.size(); ++root) {
        for (const bool inPlace : {false, true}) {
          const Case c{static_cast<Kind>(k),
                       ElementType::kInt64,
                       3001,
                       ranks.size(),
                       root,
                       hasBlocks(static_cast<Kind>(k)) && root % 2 == 1,
                       inPlace};
          ASSERT_TRUE(runsRight(ranks[rank], c, rank, Reduction::kSum));
        }
      }
    }
  });
}

// More than a chunk, and so much that all ranks of a host have a part in what crosses.
TEST_P(Hierarchical_EveryKind, LongReduceAndBroadcast_GiveThePlainResult) {
  HostedRanks ranks(GetParam(), kSmallChunks);
  test::inThreads(ranks.size(), [&](int rank) {
    for (const Kind kind : {Kind::kReduce, Kind::kBroadcast}) {
      for (const int root : {0, ranks.size() - 1}) {
        const Case c{kind, ElementType::kFloat32, 300'001, ranks.size(), root, false, rank == root};
        ASSERT_TRUE(runsRight(ranks[rank], c, rank, Reduction::kSum));
      }
    }
  });
}

TEST_P(Hierarchical_EveryKind, AverageAndMaximum_GiveThePlainResult) {
  HostedRanks ranks(GetParam(), kSmallChunks);
  const bool exact = ranks.size() % 3 != 0 && ranks.size() != 5;  // else the average of small numbers is rounded
  test::inThreads(ranks.size(), [&](int rank) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter}) {
      for (const std::size_t count : {std::size_t{10}, std::size_t{2000}}) {
        for (const Reduction reduction : {Reduction::kMax, Reduction::kAverage}) {
          if (reduction == Reduction::kAverage && !exact) continue;
          const Case c{kind, ElementType::kFloat32, count, ranks.size(), 1, false, false};
          ASSERT_TRUE(runsRight(ranks[rank], c, rank, reduction));
        }
      }
    }
  });
}

TEST_P(Hierarchical_EveryKind, AverageOfLargeHalves_DoesNotOverflow) {
  HostedRanks ranks(GetParam(), kSmallChunks);
  test::inThreads(ranks.size(), [&](int rank) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter}) {
      for (const std::size_t count : {std::size_t{10}, std::size_t{2000}}) {
        const Case c{kind, ElementType::kFloat16, count, ranks.size(), 1, false, false};
        ASSERT_TRUE(test::averagesLargeHalves(ranks[rank], c, rank));
      }
    }
  });
}

// Random numbers, so that another order of additions gives other bits.
TEST_P(Hierarchical_EveryKind, AllReduce_GivesAllRanksTheSameBitsEveryTime) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{3001}}) {
    HostedRanks ranks(GetParam(), kSmallChunks);
    std::vector<std::vector<std::byte>> results(static_cast<std::size_t>(ranks.size()));
    for (int round = 0; round < 3; ++round) {
      test::inThreads(ranks.size(), [&](int rank) {
        Buffers b(Kind::kAllReduce, ElementType::kFloat32, rank, ranks.size());
        b.outputs({count}).inputs({count});
        std::mt19937 random(static_cast<unsigned>(rank));
        std::vector<float> values(count);
        for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
        std::memcpy(b.inputData(0), values.data(), count * sizeof(float));
        ASSERT_TRUE(ranks[rank].run(b.call(), test::soon()).ok());
        auto& result = results[static_cast<std::size_t>(rank)];
        if (round > 0) {
          EXPECT_EQ(result, b.outputBytes(0)) << "round " << round;
        }
        result = b.outputBytes(0);
      });
      for (const auto& result : results) EXPECT_EQ(result, results[0]) << count;
    }
  }
}

// A path is long if it is so for all ranks of two hosts, either way: some of them may be waiting for a core.
TEST(FarHosts_RoundTrip, PathsOfTwoHosts_IsThatOfTheFastestRankAndTheFarthestHost) {
  const HostOf hostOf{0, 0, 1, 1, 2, 2};
  const auto measured = [&](const std::vector<int>& late, Duration delay = std::chrono::milliseconds(40)) {
    const auto fabric = gloo_bypass::test::MemoryFabric::make();
    std::vector<std::shared_ptr<Transport>> transports;
    for (int rank = 0; rank < static_cast<int>(hostOf.size()); ++rank) {
      const bool isLate = std::find(late.begin(), late.end(), rank) != late.end();
      transports.push_back(fabric->makeTransport({.delay = isLate ? delay : Duration{0}}));
    }
    const auto networks = test::connected(transports);
    std::vector<Duration> roundTrips(hostOf.size());
    test::inThreads(static_cast<int>(hostOf.size()), [&](int rank) {
      const auto own = longestRoundTrip(Hosts(rank, hostOf), *networks[static_cast<std::size_t>(rank)], test::soon());
      ASSERT_TRUE(own);
      roundTrips[static_cast<std::size_t>(rank)] = own.value();
    });
    for (const Duration one : roundTrips) EXPECT_EQ(one, roundTrips[0]);
    return roundTrips[0];
  };
  EXPECT_GE(measured({0, 1, 2, 3, 4, 5}), std::chrono::milliseconds(40));
  EXPECT_GE(measured({0, 1, 4, 5}), std::chrono::milliseconds(40));
  EXPECT_GE(measured({0, 1, 4, 5}, std::chrono::milliseconds(10)), std::chrono::milliseconds(10));
  for (const std::vector<int>& late : {std::vector<int>{5}, {4, 5}, {0, 2, 4}}) EXPECT_LT(measured(late), kFarAway);
}

}  // namespace
}  // namespace gloo_bypass::collectives
