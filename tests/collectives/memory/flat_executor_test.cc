#include "collectives/memory/flat_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/collectives/every_kind.h"
#include "tests/support/in_threads.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using gloo_bypass::test::inThreads;
using test::Case;
using test::runsRight;
using test::soon;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Ranks = std::vector<std::unique_ptr<Executor>>;
constexpr std::size_t kCounts[] = {0, 1, 5, 6, 100, 4'097, 30'001, 200'003};

FileDescriptor copyOf(const FileDescriptor& file) { return FileDescriptor(::dup(file.get())); }

Ranks makeRanks(int size, int lanes = 1, Patience patience = Patience::withSharedCore(), std::size_t atOnce = 4096) {
  const Layout layout = Layout::of(size, lanes);
  auto first = Segment::create(layout);
  EXPECT_TRUE(first) << first.error().message;
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) {
    auto segment = Segment::open(copyOf(first.value().file()), layout);
    EXPECT_TRUE(segment) << segment.error().message;
    std::vector<int> names(static_cast<std::size_t>(size));
    std::iota(names.begin(), names.end(), 10);
    ranks.push_back(std::make_unique<FlatExecutor>(
        std::move(segment).value(),
        FlatOptions{.rank = rank, .names = names, .patience = patience, .atOnceBytes = atOnce, .lifelines = {}}));
  }
  return ranks;
}

Call allReduce(std::span<const ConstBlock> inputs, std::span<const Block> outputs) {
  return {.kind = Kind::kAllReduce, .type = ElementType::kFloat32, .inputs = inputs, .outputs = outputs};
}

class FlatExecutor_Run : public ::testing::TestWithParam<int> {};

TEST_P(FlatExecutor_Run, EveryKind_GivesWhatItMust) {
  const int size = GetParam();
  Ranks ranks = makeRanks(size);
  inThreads(size, [&](int rank) {
    int turn = 0;
    for (int k = 0; k < kKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      for (const std::size_t count : kCounts) {
        for (const bool uneven : {false, true}) {
          if (uneven && !hasBlocks(kind)) continue;
          for (const bool inPlace : {false, true}) {
            // The largest of eight bytes: it takes several rounds of all kinds.
            const ElementType type = count == kCounts[7] ? ElementType::kInt64 : test::kTypes[turn % 4];
            const Case c{kind, type, count, size, turn++ % size, uneven, inPlace};
            ASSERT_TRUE(runsRight(*ranks[static_cast<std::size_t>(rank)], c, rank, Reduction::kSum));
          }
        }
      }
    }
  });
}

TEST_P(FlatExecutor_Run, SeveralLanes_GiveTheSame) {
  const int size = GetParam();
  Ranks ranks = makeRanks(size, 3);
  inThreads(size, [&](int rank) {
    for (int k = 0; k < kKinds; ++k) {
      const Case c{static_cast<Kind>(k), ElementType::kInt64, 300'001, size, 0, false, false};
      ASSERT_TRUE(runsRight(*ranks[static_cast<std::size_t>(rank)], c, rank, Reduction::kSum));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FlatExecutor_Run, ::testing::Values(1, 2, 3, 4, 7, 8));

TEST(FlatExecutor_Bits, AnySizeLanesAndRank_SameSumInTheOrderOfRanks) {
  constexpr std::size_t kCount = 1'000'000;
  std::vector<std::vector<float>> values(3, std::vector<float>(kCount));
  std::mt19937 random(7);
  for (auto& rank : values) {
    for (float& value : rank) value = std::normal_distribution<float>()(random);
  }
  for (const int lanes : {1, 2}) {
    Ranks ranks = makeRanks(3, lanes);
    for (const std::size_t count : {std::size_t{3}, std::size_t{1000}, kCount}) {
      inThreads(3, [&](int rank) {
        std::vector<float> result(count);
        const ConstBlock input{reinterpret_cast<const std::byte*>(values[static_cast<std::size_t>(rank)].data()),
                               count};
        const Block output{reinterpret_cast<std::byte*>(result.data()), count};
        ASSERT_TRUE(ranks[static_cast<std::size_t>(rank)]->run(allReduce({&input, 1}, {&output, 1}), soon()));
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(result[i], values[0][i] + values[1][i] + values[2][i]) << i;
        }
      });
    }
  }
}

TEST(FlatExecutor_Disagreement, DifferentOperations_BothRanksAndCallsAreNamedAtEveryRank) {
  Ranks ranks = makeRanks(3);
  inThreads(3, [&](int rank) {
    float value = 1;
    const ConstBlock input{reinterpret_cast<const std::byte*>(&value), 1};
    const Block output{reinterpret_cast<std::byte*>(&value), 1};
    Call call = allReduce({&input, 1}, {&output, 1});
    if (rank == 2) call.reduction = Reduction::kMax;
    auto& executor = *ranks[static_cast<std::size_t>(rank)];
    const Status status = executor.run(call, soon());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr("rank 12 calls all-reduce of 1 float32, max"),
                                              HasSubstr("calls all-reduce of 1 float32, sum")));
    const Status again = executor.run(call, soon());
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message, status.error().message) << "it has failed for good";
  });
}

TEST(FlatExecutor_Disagreement, BlocksOfOtherLengths_AreAnErrorAndNoStaleBytes) {
  for (const Kind kind : {Kind::kAllToAll, Kind::kAllGather, Kind::kReduceScatter}) {
    Ranks ranks = makeRanks(2);
    std::atomic<int> failed{0};
    inThreads(2, [&](int rank) {
      std::vector<float> values(64);
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      // What rank 0 has for rank 1 has 4 elements, and rank 1 expects 6; the sum is 8 at both.
      const std::size_t first = rank == 0 ? 4 : 2, second = 8 - first;
      const ConstBlock inputs[2] = {{bytes, first}, {bytes, second}};
      const Block outputs[2] = {{bytes + 128, first}, {bytes + 128, rank == 0 ? second + 2 : second}};
      Call call{.kind = kind, .type = ElementType::kFloat32, .inputs = inputs, .outputs = outputs, .uneven = true};
      if (kind == Kind::kAllGather) call.inputs = {&inputs[rank], 1};
      if (kind == Kind::kReduceScatter) call.outputs = {&outputs[0], 1};
      if (kind == Kind::kReduceScatter && rank == 1) call.outputs = {&outputs[1], 1};
      const Status status = ranks[static_cast<std::size_t>(rank)]->run(call, soon());
      if (!status) {
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
        EXPECT_THAT(status.error().message, HasSubstr("blocks of other lengths"));
        ++failed;
      }
    });
    EXPECT_GE(failed, 1) << nameOf(kind);
  }
}

TEST(FlatExecutor_Deadline, ARankDoesNotCome_ItIsNamed) {
  Ranks ranks = makeRanks(2);
  const Status status = ranks[0]->run(Call{}, monotonicNow() + std::chrono::milliseconds(20));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kTimedOut);
  EXPECT_THAT(status.error().message, HasSubstr("rank 10 has waited for rank 11"));
  const Status late = ranks[1]->run(Call{}, soon());
  ASSERT_FALSE(late) << "the group has failed for all";
  EXPECT_EQ(late.error().code, ErrorCode::kTimedOut);
}

TEST(FlatExecutor_Abort, AWaitingRank_EndsAtOnceAndSoDoItsPeers) {
  for (const Patience patience : {Patience::withSharedCore(), Patience::withOwnCore()}) {
    Ranks ranks = makeRanks(3, 1, patience);
    std::thread first([&] {
      const Status status = ranks[0]->run(Call{}, soon());
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
      EXPECT_THAT(status.error().message, HasSubstr("rank 11 has aborted"));
    });
    std::thread second([&] {
      const Status status = ranks[1]->run(Call{}, soon());
      ASSERT_FALSE(status);
      EXPECT_THAT(status.error().message, HasSubstr("has aborted this group"));
    });
    ranks[1]->abort();
    first.join();
    second.join();
  }
}

TEST(FlatExecutor_Leaving, APeerThatLeft_IsNamed_AndWhatItHadDoneStays) {
  Ranks ranks = makeRanks(2);
  std::thread leaves([&] {
    EXPECT_TRUE(ranks[1]->run(Call{}, soon()));
    ranks[1].reset();
  });
  EXPECT_TRUE(ranks[0]->run(Call{}, soon()));
  leaves.join();
  const Status status = ranks[0]->run(Call{}, soon());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerClosed);
  EXPECT_THAT(status.error().message, HasSubstr("rank 11 has left this group"));
}

TEST(FlatExecutor_Leaving, ARankLeavesWhileAnotherIsLate_IsNamedSoon) {
  Ranks ranks = makeRanks(4);
  ranks[3].reset();
  const TimePoint began = monotonicNow();
  const Status status = ranks[0]->run(Call{}, soon());  // waits for rank 11, which does not come
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerClosed);
  EXPECT_THAT(status.error().message, HasSubstr("rank 13 has left this group"));
  EXPECT_LT(monotonicNow() - began, test::kPatience / 2);
}

TEST(FlatExecutor_Leaving, ARankThatCameBeforeItLeft_IsNotMissedWhileAnotherIsLate) {
  Ranks ranks = makeRanks(3);
  ASSERT_TRUE(ranks[2]->begin(Call{}));
  ranks[2].reset();
  std::thread first([&] { EXPECT_TRUE(ranks[0]->run(Call{}, soon())); });
  // Time for the first to look at it.
  ::usleep(20'000);
  EXPECT_TRUE(ranks[1]->run(Call{}, soon()));
  first.join();
}

// A peer writes anything anywhere in the memory, for as long as the operations run: values and outcomes are arbitrary,
// but the process lives, and every wait ends.
TEST(FlatExecutor_HostileMemory, ScribblingPeer_SpoilsValuesOnly) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (unsigned run = 0; run < 20; ++run) {
    const Layout layout = Layout::of(2, 1);
    auto scribbled = Segment::create(layout);
    ASSERT_TRUE(scribbled);
    auto own = Segment::open(copyOf(scribbled.value().file()), layout);
    ASSERT_TRUE(own);
    FlatExecutor rank(std::move(own).value(), {.rank = 0, .names = {0, 1}, .patience = {}, .lifelines = {}});
    std::atomic<bool> done{false};
    std::thread peer([&] {
      std::mt19937_64 random(seed + run);
      auto* words = static_cast<volatile std::uint32_t*>(
          ::mmap(nullptr, layout.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, scribbled.value().file().get(), 0));
      while (!done) {
        // Mostly round numbers and header words, sometimes anything.
        const std::size_t at = random() % 3 == 0 ? random() % (layout.bytes() / 4) : random() % 64;
        words[at] = static_cast<std::uint32_t>(random() % 4 == 0 ? random() : random() % 8);
        Line& line = scribbled.value().line(1, 0, static_cast<std::uint32_t>(random() % 2));
        line.round.store(static_cast<std::uint32_t>(random() % 6));
        std::memset(line.payload, static_cast<int>(random()), sizeof(line.payload));
      }
      ::munmap(const_cast<std::uint32_t*>(words), layout.bytes());
    });
    std::vector<float> values(100'000);
    const ConstBlock input{reinterpret_cast<const std::byte*>(values.data()), values.size()};
    const Block output{reinterpret_cast<std::byte*>(values.data()), values.size()};
    for (int i = 0; i < 3; ++i) {
      (void)rank.run(allReduce({&input, 1}, {&output, 1}), monotonicNow() + std::chrono::milliseconds(50));
      Block outputs[2] = {output, output};
      (void)rank.run(
          {.kind = Kind::kAllGather, .type = ElementType::kFloat32, .inputs = {&input, 1}, .outputs = outputs},
          monotonicNow() + std::chrono::milliseconds(50));
    }
    done = true;
    peer.join();
  }
}

TEST(Layout_Of, AnyNumberOfRanks_StaysWithinTheBound) {
  for (const int ranks : {1, 2, 8, 64, 255, Layout::kMostRanks}) {
    for (const int lanes : {1, 4, Layout::kMostLanes}) {
      const Layout layout = Layout::of(ranks, lanes);
      EXPECT_LE(layout.bytes(), Layout::kMostBytes) << ranks << " " << lanes;
      EXPECT_GE(layout.slotBytes / static_cast<std::size_t>(ranks), 128u) << ranks << " " << lanes;
    }
  }
}

TEST(Segment_Open, NotSealedOrOfAnotherSize_IsRefused) {
  const Layout layout = Layout::of(2, 1);
  auto larger = Segment::create(Layout::of(3, 1));
  ASSERT_TRUE(larger);
  EXPECT_FALSE(Segment::open(copyOf(larger.value().file()), layout));
  FileDescriptor unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(layout.bytes())), 0);
  EXPECT_FALSE(Segment::open(std::move(unsealed), layout));
  EXPECT_FALSE(Segment::open(FileDescriptor(), layout));
}

}  // namespace
}  // namespace gloo_bypass::collectives
