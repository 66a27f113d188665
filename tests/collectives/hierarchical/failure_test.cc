// Ranks that disagree, vanish, abort, leave or do not come: every rank of every host has an error that names the cause,
// and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <random>
#include <thread>

#include "tests/collectives/hierarchical/ranks.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using std::chrono::milliseconds;
using test::Buffers;
using test::HostedRanks;
using test::HostOf;
using test::inThreads;
using test::soon;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr HierarchicalOptions kSmallChunks{.chunkBytes = 4096, .byLeadersBytes = 1024};
const HostOf kTwoByTwo{0, 0, 1, 1}, kInTurn{0, 1, 0, 1}, kThreeAndOne{0, 0, 0, 1}, kOneOneTwo{0, 1, 2, 2};

Buffers operation(Kind kind, std::size_t count, int rank, int size) {
  Buffers b(kind, ElementType::kFloat32, rank, size);
  const std::vector<std::size_t> each(static_cast<std::size_t>(size), count);
  switch (kind) {
    case Kind::kAllReduce:
      return std::move(b.outputs({count}).inputs({count}));
    case Kind::kBroadcast:
      return std::move(rank == 0 ? b.inputs({count}) : b.outputs({count}));
    case Kind::kReduce:
      if (rank == 0) b.outputs({count});
      return std::move(b.inputs({count}));
    case Kind::kReduceScatter:
      return std::move(b.outputs({count}).inputs(each));
    case Kind::kAllGather:
      return std::move(b.outputs(each).inputs({count}));
    case Kind::kAllToAll:
      return std::move(b.outputs(each).inputs(each));
    default:
      return b;
  }
}

Status run(HostedRanks& ranks, int rank, Kind kind, std::size_t count, TimePoint deadline = soon()) {
  Buffers b = operation(kind, count, rank, ranks.size());
  b.fill();
  return ranks[rank].run(b.call(), deadline);
}

// Some rank calls something else, in whatever place it stands.
TEST(Hierarchical_Mismatch, OneRankCallsAnother_BothRanksAndCallsAreNamedByAllSoon) {
  for (const HostOf& hostOf : {kTwoByTwo, kInTurn, kThreeAndOne, kOneOneTwo}) {
    for (int odd = 0; odd < 4; ++odd) {
      for (const Kind other : {Kind::kBarrier, Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kAllToAll}) {
        HostedRanks ranks(hostOf, kSmallChunks);
        inThreads(4, [&](int rank) {
          ASSERT_TRUE(run(ranks, rank, Kind::kAllReduce, 10).ok());
          const TimePoint began = monotonicNow();
          Status status = rank == odd ? run(ranks, rank, other, 99) : run(ranks, rank, Kind::kAllReduce, 1000);
          // Its part may have ended, as that of a rank that only sends: then the next operation fails.
          if (rank == odd && status.ok()) status = run(ranks, rank, Kind::kAllReduce, 1000);
          ASSERT_FALSE(status.ok()) << rank;
          EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << status.error().message;
          EXPECT_THAT(status.error().message,
                      AllOf(HasSubstr("rank " + std::to_string(odd)), HasSubstr("all-reduce of 1000 float32, sum"),
                            HasSubstr(nameOf(other))));
          EXPECT_LT(monotonicNow() - began, test::kPatience / 2);
        });
        if (HasFailure())
          FAIL() << "rank " << odd << " calls " << nameOf(other) << ", hosts " << hostOf[1] << hostOf[2];
      }
    }
  }
}

// Ranks of one place call the one, and those of another place the other.
TEST(Hierarchical_Mismatch, PlacesDisagree_IsFoundThoughEachHostHasBoth) {
  for (const Kind other : {Kind::kAllToAll, Kind::kBroadcast, Kind::kAllGather}) {
    HostedRanks ranks(kTwoByTwo, kSmallChunks);
    inThreads(4, [&](int rank) {
      const Status status = run(ranks, rank, rank == 0 || rank == 3 ? other : Kind::kBarrier, 10);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message, AllOf(HasSubstr("calls barrier"), HasSubstr(nameOf(other))));
    });
  }
}

// Kills one rank at a random moment of a stream of operations. `Noticed`: the network sees it, too.
class Hierarchical_ARankIsKilled : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(NetworkNotices, Hierarchical_ARankIsKilled, ::testing::Bool());

TEST_P(Hierarchical_ARankIsKilled, AtAnyMoment_AllHostsNameItSoon) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const HostOf& hostOf : {kTwoByTwo, kInTurn, kThreeAndOne}) {
    for (int kill = 0; kill < 10; ++kill) {
      HostedRanks ranks(hostOf, kSmallChunks);
      const int victim = static_cast<int>(random() % 3);  // it has a mate
      if (hostOf == kThreeAndOne && !GetParam()) continue;
      const unsigned last = random() % 12;
      std::atomic<TimePoint> killed{TimePoint::max()};
      inThreads(4, [&](int rank) {
        for (unsigned i = 0;; ++i) {
          if (rank == victim && i == last) {
            killed = monotonicNow();
            return ranks.kill(rank, GetParam());
          }
          const Kind kinds[] = {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduceScatter, Kind::kReduce,
                                Kind::kAllReduce, Kind::kAllGather, Kind::kBarrier};
          const Status status = run(ranks, rank, kinds[i % 7], i % 2 == 0 ? 10 : 3000);
          if (status) continue;
          EXPECT_THAT(status.error().message, HasSubstr("rank " + std::to_string(victim)));
          EXPECT_EQ(status.error().code, ErrorCode::kPeerVanished) << status.error().message;
          EXPECT_LT(monotonicNow() - killed.load(), std::chrono::seconds(10));
          return;
        }
      });
    }
  }
}

TEST(Hierarchical_Abort, WaitingRanksOfAllHosts_EndAtOnce) {
  for (const HostOf& hostOf : {kTwoByTwo, kThreeAndOne, kOneOneTwo}) {
    for (int aborter = 0; aborter < 4; ++aborter) {
      HostedRanks ranks(hostOf, kSmallChunks);
      const int absent = aborter == 2 ? 3 : 2;
      std::atomic<int> waiting{0};
      const TimePoint began = monotonicNow();
      inThreads(5, [&](int rank) {
        if (rank == absent) return;
        if (rank == 4) {
          while (waiting < 3) std::this_thread::yield();
          return ranks[aborter].abort();
        }
        ++waiting;
        const Status status = run(ranks, rank, Kind::kAllReduce, 3000);
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, HasSubstr("abort"));
        if (rank == aborter) {
          EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
        }
        if (rank != aborter) {
          EXPECT_THAT(status.error().message, HasSubstr("rank " + std::to_string(aborter)));
        }
      });
      EXPECT_LT(monotonicNow() - began, test::kPatience / 2);
      EXPECT_FALSE(run(ranks, absent, Kind::kAllReduce, 3000).ok()) << "the group has failed for all";
    }
  }
}

TEST(Hierarchical_Deadline, ARankDoesNotCome_AllNameIt) {
  for (const HostOf& hostOf : {kTwoByTwo, kInTurn, kThreeAndOne}) {
    for (int absent = 0; absent < 4; ++absent) {
      HostedRanks ranks(hostOf, {.chunkBytes = 4096, .byLeadersBytes = 1024, .grace = std::chrono::seconds(2)});
      std::barrier<> come(3);  // a thread may get its core late
      inThreads(4, [&](int rank) {
        if (rank == absent) return;
        come.arrive_and_wait();
        const Status status = run(ranks, rank, Kind::kAllReduce, 3000, monotonicNow() + std::chrono::seconds(1));
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kTimedOut) << status.error().message;
        EXPECT_THAT(status.error().message, HasSubstr("for rank " + std::to_string(absent)));
      });
    }
  }
}

TEST(Hierarchical_Leaving, ARankLeft_IsNamed_AndWhatItHadDoneStays) {
  HostedRanks ranks(kTwoByTwo, kSmallChunks);
  inThreads(4, [&](int rank) {
    ASSERT_TRUE(run(ranks, rank, Kind::kAllReduce, 3000).ok());
    if (rank == 3) return ranks.leave(3);
    const Status status = run(ranks, rank, Kind::kAllReduce, 3000);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerClosed);
    EXPECT_THAT(status.error().message, HasSubstr("rank 3"));
  });
}

}  // namespace
}  // namespace gloo_bypass::collectives
