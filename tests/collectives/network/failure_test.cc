// Ranks that disagree, vanish, stop, abort or leave: every other rank has an error that names the cause, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/network/wire.h"
#include "tests/collectives/network/ranks.h"
#include "tests/support/channel_pair.h"
#include "tests/support/memory_transport.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using gloo_bypass::test::MemoryFabric;
using gloo_bypass::test::MemoryRendezvous;
using std::chrono::milliseconds;
using test::Buffers;
using test::inThreads;
using test::soon;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Ranks with a transport each, so that a test can stop one.
struct Ranks {
  explicit Ranks(int size, const test::Change& change = {}) {
    for (int rank = 0; rank < size; ++rank) transports.push_back(fabric->makeTransport());
    executors = test::connected(transports, change);
  }
  NetworkExecutor& operator[](int rank) { return *executors[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<MemoryFabric> fabric = MemoryFabric::make();
  std::vector<std::shared_ptr<Transport>> transports;
  std::vector<std::unique_ptr<NetworkExecutor>> executors;
};

Buffers vectorOf(Kind kind, std::size_t count, int rank, int size, ElementType type = ElementType::kFloat32) {
  Buffers b(kind, type, rank, size);
  if (kind == Kind::kAllReduce) b.outputs({count}).inputs({count});
  if (kind == Kind::kBroadcast) rank == 0 ? b.inputs({count}) : b.outputs({count});
  if (kind == Kind::kReduce) {
    b.inputs({count});
    if (rank == 0) b.outputs({count});
  }
  if (kind == Kind::kGather) {
    b.inputs({count});
    if (rank == 0) b.outputs(std::vector<std::size_t>(static_cast<std::size_t>(size), count));
  }
  return b;
}

Status allReduce(NetworkExecutor& executor, std::size_t count, int rank, int size, TimePoint deadline = soon()) {
  return executor.run(vectorOf(Kind::kAllReduce, count, rank, size).call(), deadline);
}

TEST(Network_Mismatch, OtherKindCountOrType_IsNamedByAllRanksSoon) {
  constexpr int kSize = 3;
  struct Other {
    Kind kind;
    std::size_t count;
    ElementType type;
    const char* text;
  };
  for (const Other& other :
       {Other{Kind::kBarrier, 0, ElementType::kFloat32, "rank 2 calls barrier"},
        Other{Kind::kBroadcast, 100, ElementType::kFloat32, "rank 2 calls broadcast of 100 float32"},
        Other{Kind::kGather, 100, ElementType::kFloat32, "rank 2 calls gather of 100 float32"},
        Other{Kind::kAllReduce, 99, ElementType::kFloat32, "rank 2 calls all-reduce of 99 float32"},
        Other{Kind::kAllReduce, 100, ElementType::kInt32, "rank 2 calls all-reduce of 100 int32"}}) {
    Ranks ranks(kSize);
    inThreads(kSize, [&](int rank) {
      ASSERT_TRUE(allReduce(ranks[rank], 10, rank, kSize).ok());
      const TimePoint began = monotonicNow();
      const bool odd = rank == kSize - 1;
      Buffers b = odd ? vectorOf(other.kind, other.count, rank, kSize, other.type)
                      : vectorOf(Kind::kAllReduce, 100, rank, kSize);
      Status status = ranks[rank].run(b.call(), soon());
      // Its part may have ended, as that of a rank that only sends: then the next operation fails.
      if (odd && status.ok()) status = allReduce(ranks[rank], 100, rank, kSize);
      ASSERT_FALSE(status.ok()) << rank;
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message, AllOf(HasSubstr(other.text), HasSubstr("all-reduce of 100 float32, sum")));
      EXPECT_LT(monotonicNow() - began, test::kPatience / 2);
    });
  }
}

// Neither sends to the other.
TEST(Network_Mismatch, BothOnlyReceive_IsFoundThoughNobodySends) {
  Ranks ranks(2);
  inThreads(2, [&](int rank) {
    Buffers b = vectorOf(rank == 0 ? Kind::kGather : Kind::kBroadcast, 5, rank, 2);
    const Status status = ranks[rank].run(b.call(), soon());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr("rank 0 calls gather of 5"), HasSubstr("rank 1 calls broadcast of 5")));
  });
}

// Nobody waits for the other: both have sent their vector and go on.
TEST(Network_Mismatch, BothOnlySend_IsFoundByTheNextCall) {
  for (const std::size_t count : {5, 100'000}) {  // behind the header, and by itself
    Ranks ranks(2);
    inThreads(2, [&](int rank) {
      Buffers b(Kind::kBroadcast, ElementType::kFloat32, rank, 2);
      b.inputs({count});
      Call call = b.call();
      call.root = rank;
      Status status = ranks[rank].run(call, soon());
      if (status.ok()) status = allReduce(ranks[rank], 5, rank, 2);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message,
                  AllOf(HasSubstr("rank 0 calls broadcast of"), HasSubstr("from rank 0, rank 1 calls broadcast of")));
    });
  }
}

// Rank 1 is far ahead: what it sends is not expected in the operation in which rank 0 comes to it.
TEST(Network_Mismatch, HeadersOfLaterOperations_AreJudgedWhenTheirTurnComes) {
  Ranks ranks(2);
  std::barrier ahead(2);
  inThreads(2, [&](int rank) {
    const auto broadcast = [&](int root) {
      Buffers b(Kind::kBroadcast, ElementType::kFloat32, rank, 2);
      rank == root ? b.inputs({5}) : b.outputs({5});
      Call call = b.call();
      call.root = root;
      return ranks[rank].run(call, soon());
    };
    if (rank == 1) {
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(broadcast(1).ok());
      ahead.arrive_and_wait();
      return;
    }
    ahead.arrive_and_wait();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(broadcast(1).ok());
    Status status = broadcast(0);
    if (status.ok()) status = broadcast(0);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("rank 0 calls broadcast of 5 float32 from rank 0, rank 1 calls"));
  });
}

// Of operations among other ranks this one sees nothing, and there may be millions.
TEST(Network_Mismatch, HeaderAfterManyOperationsOfOthers_IsNoDisagreement) {
  Ranks ranks(2);
  const std::vector<int> both{0, 1};
  std::barrier begun(2), sent(2);
  inThreads(2, [&](int rank) {
    const auto broadcast = [&](std::uint64_t number) {
      Buffers b = vectorOf(Kind::kBroadcast, 5, 1 - rank, 2);
      Call call = b.call();
      call.root = 1;
      return ranks[rank].runAmong(call, {both, number}, soon());
    };
    EXPECT_TRUE(broadcast(2).ok());
    begun.arrive_and_wait();  // an operation among others has an end, too
    const std::uint64_t later = 2 + (1u << 23) + 1;
    if (rank == 1) {
      EXPECT_TRUE(broadcast(later).ok());
      sent.arrive_and_wait();
      return;
    }
    sent.arrive_and_wait();
    (void)ranks[rank].wait([] { return false; }, monotonicNow() + milliseconds(20));  // the header is here
    const Status status = broadcast(later);
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
}

TEST(Network_Mismatch, CountsOfBlocksDiffer_NamesBothRanksAndCounts) {
  Ranks ranks(2);
  inThreads(2, [&](int rank) {
    Buffers b(Kind::kAllToAll, ElementType::kInt32, rank, 2);
    if (rank == 0) b.outputs({4, 4}).inputs({4, 4});
    if (rank == 1) b.outputs({5, 4}).inputs({5, 4});
    const Status status = ranks[rank].run(b.call(), soon());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, AnyOf(HasSubstr("rank 1 sends 20 bytes to rank 0, which expects 16"),
                                              HasSubstr("rank 0 sends 16 bytes to rank 1, which expects 20")));
  });
}

// Rank 0 only sends, so its broadcast ends at once, and what it loses is the next operation. Rank 2 still passes the
// data on to rank 3.
TEST(Network_Failure, ARankThatHearsOfALaterLossFirst_StillDoesItsPartBefore) {
  for (const Algorithm algorithm : {Algorithm::kBinomial, Algorithm::kScatterAllGather}) {
    Ranks ranks(4, [&](NetworkOptions& options) { options.choices.prefer(algorithm); });
    inThreads(4, [&](int rank) {
      Buffers b(Kind::kBroadcast, ElementType::kFloat32, rank, 4);
      if (rank == 0) b.inputs({100});
      if (rank != 0) b.outputs({100});
      if (rank == 0) {
        (void)ranks[rank].run(b.call(), soon());
        ranks[rank].abort();
        return;
      }
      // Hears of it before it calls anything.
      if (rank == 2) (void)ranks[rank].wait([&] { return !ranks[rank].failure(2).ok(); }, soon());
      const TimePoint began = monotonicNow();
      EXPECT_TRUE(ranks[rank].run(b.call(), soon()).ok()) << nameOf(algorithm) << " at rank " << rank;
      EXPECT_FALSE(allReduce(ranks[rank], 100, rank, 4).ok());
      EXPECT_LT(monotonicNow() - began, std::chrono::seconds(10)) << nameOf(algorithm) << " at rank " << rank;
    });
  }
}

TEST(Network_Mismatch, AlgorithmsDiffer_NamesBoth) {
  Ranks ranks(2, [](NetworkOptions& options) {
    options.choices.prefer(options.rank == 0 ? Algorithm::kRing : Algorithm::kDoubleTree);
  });
  inThreads(2, [&](int rank) {
    const Status status = allReduce(ranks[rank], 100, rank, 2);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kConfiguration);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr("ring"), HasSubstr("double-tree")));
  });
}

TEST(Network_Vanish, InTheMiddle_IsNamedByAllSurvivors) {
  constexpr int kSize = 5, kDead = 3;
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kDirect, Algorithm::kDoubleTree, Algorithm::kHalvingDoubling}) {
    Ranks ranks(kSize, [&](NetworkOptions& options) { options.choices.prefer(algorithm); });
    inThreads(kSize, [&](int rank) {
      if (rank == kDead) {
        ASSERT_TRUE(allReduce(ranks[rank], 1000, rank, kSize).ok());
        ranks.fabric->vanish(*ranks.transports[kDead]);
        return;
      }
      const Status first = allReduce(ranks[rank], 1000, rank, kSize);
      ASSERT_TRUE(first.ok()) << first.error().message << ", " << nameOf(algorithm) << ", at rank " << rank;
      const TimePoint began = monotonicNow();
      const Status status = allReduce(ranks[rank], 300'000, rank, kSize);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kPeerVanished) << status.error().message;
      EXPECT_THAT(status.error().message, HasSubstr("rank 3")) << nameOf(algorithm);
      EXPECT_LT(monotonicNow() - began, test::kPatience / 2);
      // For good, and at once.
      EXPECT_EQ(allReduce(ranks[rank], 10, rank, kSize).error().message, status.error().message);
    });
  }
}

// The survivors have begun operations before their turn, and so has the dead rank, which may even have done its part of
// them. It never comes to the last one.
TEST(Network_Vanish, WithOperationsAhead_TheFirstEndsWellAndTheRestNameIt) {
  constexpr int kSize = 4, kDead = 2;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect, Algorithm::kHalvingDoubling}) {
    Ranks ranks(kSize, [&](NetworkOptions& options) { options.choices.prefer(algorithm); });
    inThreads(kSize, [&](int rank) {
      std::vector<std::unique_ptr<Buffers>> all;
      for (const std::size_t count : {1'000, 300'000, 10, 5'000, 300'000, 11}) {
        all.push_back(std::make_unique<Buffers>(vectorOf(Kind::kAllReduce, count, rank, kSize)));
        const bool isLast = count == 11;
        if (!isLast || rank != kDead) ranks[rank].announce(all.back()->call());
      }
      const Status first = ranks[rank].run(all[0]->call(), soon());
      ASSERT_TRUE(first.ok()) << first.error().message << ", " << nameOf(algorithm) << ", at rank " << rank;
      if (rank == kDead) return ranks.fabric->vanish(*ranks.transports[kDead]);
      std::string why;
      for (std::size_t i = 1; i < all.size(); ++i) {
        const Status status = ranks[rank].run(all[i]->call(), soon());
        if (status.ok()) {
          EXPECT_EQ(why, "") << i << " ends well after one that failed";
          continue;
        }
        if (why.empty()) why = status.error().message;
        EXPECT_EQ(status.error().message, why);
      }
      EXPECT_THAT(why, HasSubstr("rank 2")) << nameOf(algorithm);
      // All buffers are the caller's.
      std::vector<std::vector<std::byte>> before;
      for (const auto& one : all) before.push_back(one->outputBytes(0));
      (void)ranks[rank].wait([] { return false; }, monotonicNow() + milliseconds(20));
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->outputBytes(0), before[i]);
    });
  }
}

// Two ranks have begun what follows, and the third one calls something else there.
TEST(Network_Mismatch, InOneThatHasBegunAhead_ThoseBeforeEndWell) {
  constexpr int kSize = 3;
  Ranks ranks(kSize);
  inThreads(kSize, [&](int rank) {
    std::vector<std::unique_ptr<Buffers>> all;
    for (const std::size_t count : {10, 2'000, 30}) {
      const std::size_t odd = count == 30 && rank == kSize - 1 ? 1 : 0;
      all.push_back(std::make_unique<Buffers>(vectorOf(Kind::kAllReduce, count + odd, rank, kSize)));
      ranks[rank].announce(all.back()->call());
    }
    for (int i = 0; i < 2; ++i) {
      const Status status = ranks[rank].run(all[static_cast<std::size_t>(i)]->call(), soon());
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
    const Status status = ranks[rank].run(all[2]->call(), soon());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr("rank 2 calls all-reduce of 31 float32"));
  });
}

TEST(Network_Leave, AfterItsPart_IsNoErrorForTheOthers) {
  Ranks ranks(3);
  inThreads(3, [&](int rank) {
    Buffers b = vectorOf(Kind::kGather, 100, rank, 3);
    ASSERT_TRUE(ranks[rank].run(b.call(), soon()).ok());
    if (rank != 0) ranks.executors[static_cast<std::size_t>(rank)].reset();
  });
  const Status status = allReduce(ranks[0], 10, 0, 3);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kPeerClosed);
  EXPECT_THAT(status.error().message, HasSubstr("has left the group"));
}

// Who has come to an operation. One rank is impatient; its time begins once the others are there, as a thread may get
// its core late.
class Come {
 public:
  TimePoint deadlineOf(bool impatient, int others) {
    if (!impatient) ++come_;
    while (impatient && come_ < others) std::this_thread::yield();
    return impatient ? monotonicNow() + std::chrono::seconds(3) : soon();
  }

 private:
  std::atomic<int> come_{0};
};

TEST(Network_Deadline, RankDoesNotCome_IsNamed) {
  Ranks ranks(3);
  Come come;
  inThreads(3, [&](int rank) {
    if (rank == 1) return;
    const TimePoint deadline = come.deadlineOf(rank == 0, 1);
    const Status status = allReduce(ranks[rank], 100, rank, 3, deadline);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kTimedOut);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr("rank 0 waited"), HasSubstr("for rank 1")));
  });
  // The late one has all it needs for this operation, or knows already.
  Status late = allReduce(ranks[1], 100, 1, 3);
  if (late.ok()) late = allReduce(ranks[1], 100, 1, 3);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kTimedOut);
}

// Whose own partners have come, and wait for it too.
TEST(Network_Deadline, RankThatOthersWaitFor_IsNamedByThoseWhoWaitForTheOthers) {
  constexpr int kSize = 5;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDoubleTree, Algorithm::kHalvingDoubling}) {
    for (const int absent : {0, 2, 4}) {
      const int impatient = (absent + 3) % kSize;
      Ranks ranks(kSize, [&](NetworkOptions& options) { options.choices.prefer(algorithm); });
      Come come;
      inThreads(kSize, [&](int rank) {
        if (rank == absent) return;
        const TimePoint deadline = come.deadlineOf(rank == impatient, kSize - 2);
        const Status status = allReduce(ranks[rank], 300'000, rank, kSize, deadline);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kTimedOut);
        EXPECT_THAT(status.error().message, ::testing::EndsWith("for rank " + std::to_string(absent)))
            << nameOf(algorithm) << " at rank " << rank;
      });
    }
  }
}

// Ranks whose part is done say so when they are asked.
TEST(Network_Deadline, RanksWhosePartIsDone_AreNotNamed) {
  constexpr int kSize = 8, kAbsent = 7;
  Ranks ranks(kSize, [&](NetworkOptions& options) { options.choices.prefer(Algorithm::kBinomial); });
  std::atomic<bool> over{false};
  Come come;
  inThreads(kSize, [&](int rank) {
    if (rank == kAbsent) return;
    Buffers b = vectorOf(Kind::kReduce, 100, rank, kSize);
    const TimePoint deadline = come.deadlineOf(rank == 0, kSize - 2);
    const Status status = ranks[rank].run(b.call(), deadline);
    if (rank == 0) {
      EXPECT_THAT(status.error().message, AllOf(HasSubstr("rank 0 waited"), ::testing::EndsWith("for rank 7")));
      over = true;
    }
    ranks[rank].wait([&] { return over.load(); }, soon());
  });
}

TEST(Network_Abort, FromAnotherThread_EndsWaitsHereAndThere) {
  Ranks ranks(3);
  inThreads(4, [&](int thread) {
    if (thread == 2) return;  // never comes
    if (thread == 3) return ranks[0].abort();
    const Status status = allReduce(ranks[thread], 300'000, thread, 3);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, thread == 0 ? ErrorCode::kCancelled : ErrorCode::kPeerClosed);
    EXPECT_THAT(status.error().message, HasSubstr("rank 0 has aborted this group"));
  });
}

// After an error the buffers are the caller's.
TEST(Network_Failure, BuffersAfterIt_AreNotTouched) {
  Ranks ranks(2);
  Buffers late = vectorOf(Kind::kAllReduce, 300'000, 0, 2);
  ASSERT_FALSE(ranks[0].run(late.call(), monotonicNow() + milliseconds(20)).ok());
  const std::vector<std::byte> before = late.outputBytes(0);
  EXPECT_FALSE(allReduce(ranks[1], 300'000, 1, 2).ok());
  ranks[0].wait([] { return false; }, monotonicNow() + milliseconds(50));
  EXPECT_EQ(late.outputBytes(0), before);
}

// Its channel goes on, and would fill the buffer of a receive that has ended.
TEST(Network_Messages, APeerBreaksTheProtocol_NoBufferIsTouchedAfterTheError) {
  MemoryRendezvous rendezvous;
  const auto fabric = MemoryFabric::make();
  const auto own = fabric->makeTransport(), theirs = fabric->makeTransport();
  gloo_bypass::test::Recorder recorder;
  std::unique_ptr<MessageChannel> rank1;
  theirs->progress().exclusive([&] {
    rank1 = std::move(theirs->openChannel({.localRank = 1, .peerRank = 0}, &recorder).value());
    const std::vector<std::vector<std::byte>> addresses{rank1->localAddress(), {}};
    ASSERT_TRUE(rendezvous.set("network/1", encodeAddresses(1, addresses)).ok());
  });
  std::unique_ptr<NetworkExecutor> rank0;
  std::thread connects([&] {
    auto made = NetworkExecutor::connect({.rank = 0, .size = 2, .timeout = std::chrono::seconds(20)}, own, rendezvous);
    ASSERT_TRUE(made.ok()) << made.error().message;
    rank0 = std::move(made).value();
  });
  const auto value = rendezvous.get("network/0", std::chrono::seconds(20));
  ASSERT_TRUE(value.ok());
  const auto addresses = decodeAddresses(value.value(), 0, 2);
  ASSERT_TRUE(addresses.ok());
  theirs->progress().exclusive([&] { ASSERT_TRUE(rank1->connect(addresses.value()[1]).ok()); });
  connects.join();
  ASSERT_NE(rank0, nullptr);

  std::byte buffer{};
  bool ended = false;
  rank0->receive({.peer = 1, .tag = 5, .data = &buffer, .bytes = 1}, [&](const Status& status, int) {
    EXPECT_FALSE(status.ok());
    ended = true;
  });
  const std::vector<std::byte> rubbish(5, std::byte{0x7f});
  theirs->progress().exclusive([&] {
    ASSERT_TRUE(rank1->postSend({.token = 2, .key = controlKey(), .data = rubbish.data(), .length = 5}).ok());
    ASSERT_TRUE(rank1->postSend({.token = 3, .key = programKey(5), .data = rubbish.data(), .length = 1}).ok());
  });
  EXPECT_TRUE(rank0->wait([&] { return ended; }, soon()));
  (void)rank0->wait([] { return false; }, monotonicNow() + milliseconds(50));
  EXPECT_EQ(buffer, std::byte{});
  theirs->progress().exclusive([&] { rank1.reset(); });
}

TEST(Network_Connect, RankDoesNotCome_IsNamed) {
  MemoryRendezvous rendezvous;
  auto fabric = MemoryFabric::make();
  std::barrier both(2);
  inThreads(2, [&](int rank) {
    const auto transport = fabric->makeTransport();  // which starts threads
    both.arrive_and_wait();
    const auto made =
        NetworkExecutor::connect({.rank = rank, .size = 4, .timeout = std::chrono::seconds(2)}, transport, rendezvous);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kTimedOut);
    EXPECT_THAT(made.error().message, HasSubstr("for ranks 2 and 3"));
  });
}

TEST(Network_Connect, HostileValue_IsRefused) {
  for (const std::size_t length : {0, 3, 16, 700}) {
    MemoryRendezvous rendezvous;
    ASSERT_TRUE(rendezvous.set("network/1", std::vector<std::byte>(length, std::byte{0x7f})).ok());
    const auto made = NetworkExecutor::connect({.rank = 0, .size = 2, .timeout = milliseconds(500)},
                                               MemoryFabric::make()->makeTransport(), rendezvous);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kPeerViolatedProtocol);
    EXPECT_THAT(made.error().message, HasSubstr("what rank 1 published"));
  }
}

TEST(Network_Connect, SettingsDiffer_FailsAndNamesTheRank) {
  MemoryRendezvous rendezvous;
  auto fabric = MemoryFabric::make();
  inThreads(2, [&](int rank) {
    gloo_bypass::test::MemoryTransportOptions options;
    options.dialect = rank == 0 ? "1" : "2";
    const auto made = NetworkExecutor::connect({.rank = rank, .size = 2, .timeout = std::chrono::seconds(20)},
                                               fabric->makeTransport(options), rendezvous);
    ASSERT_FALSE(made.ok());
    EXPECT_THAT(made.error().message, HasSubstr(rank == 0 ? "rank 1" : "rank 0"));
  });
}

}  // namespace
}  // namespace gloo_bypass::collectives
