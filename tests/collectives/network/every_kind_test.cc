// Every kind of operation with every algorithm, over every medium: results against a plain loop.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/collectives/network/ranks.h"

namespace gloo_bypass::collectives {
namespace {

using test::Buffers;
using test::Case;
using test::casesOf;
using test::Medium;
using test::runsRight;

class Network_EveryKind : public ::testing::TestWithParam<Medium> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Network_EveryKind);
INSTANTIATE_TEST_SUITE_P(Media, Network_EveryKind, ::testing::ValuesIn(test::media()), test::nameOf);

TEST_P(Network_EveryKind, AnyCountRootAndAlgorithm_GivesThePlainResult) {
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    for (int a = 0; a < kAlgorithms; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      std::vector<int> hostOf;
      for (int rank = 0; rank < size; ++rank) hostOf.push_back(rank / 2);
      auto executors = test::connected(GetParam(), size, [&](NetworkOptions& options) {
        options.choices.prefer(algorithm);
        options.hostOf = hostOf;
      });
      test::inThreads(size, [&](int rank) {
        for (int k = 0; k < kKinds; ++k) {
          if (findAlgorithm(static_cast<Kind>(k), algorithm) == nullptr) continue;
          for (const Case& c : casesOf(static_cast<Kind>(k), size)) {
            ASSERT_TRUE(runsRight(*executors[static_cast<std::size_t>(rank)], c, rank, Reduction::kSum))
                << nameOf(algorithm);
          }
        }
      });
      if (HasFailure()) return;
    }
  }
}

// With 2 ranks they share a host, with more the hosts are several.
test::Change twoRanksAHost(int size) {
  return [size](NetworkOptions& options) {
    for (int rank = 0; rank < size; ++rank) options.hostOf.push_back(rank / 2);
  };
}

TEST_P(Network_EveryKind, SeveralSlices_GiveThePlainResult) {
  for (const int size : {2, 3, 4}) {
    auto executors = test::connected(GetParam(), size, twoRanksAHost(size));
    test::inThreads(size, [&](int rank) {
      for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter,
                              Kind::kAllToAll}) {
        const Case c{kind, ElementType::kFloat32, 700'001, size, size - 1, kind == Kind::kAllToAll, rank % 2 == 0};
        ASSERT_TRUE(runsRight(*executors[static_cast<std::size_t>(rank)], c, rank, Reduction::kSum));
      }
    });
    if (HasFailure()) return;
  }
}

// Each rank announces all, and some of them begin before their turn. Ranks come to them at different times.
TEST_P(Network_EveryKind, AnnouncedBeforeTheFirstOne_GiveThePlainResults) {
  for (const int size : {2, 3, 4}) {
    auto executors = test::connected(GetParam(), size, twoRanksAHost(size));
    test::inThreads(size, [&](int rank) {
      Executor& executor = *executors[static_cast<std::size_t>(rank)];
      std::vector<Case> cases;
      for (const std::size_t count : {5, 3'000, 200'001}) {
        for (int k = 0; k < kKinds; ++k) {
          const auto kind = static_cast<Kind>(k);
          cases.push_back({kind, ElementType::kFloat32, count, size, k % size, false, k % 2 == 0});
        }
      }
      std::vector<std::unique_ptr<Buffers>> buffers;
      for (const Case& c : cases) {
        buffers.push_back(std::make_unique<Buffers>(buffersFor(c, rank)));
        executor.announce(buffers.back()->call());
      }
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const Status status = executor.run(buffers[i]->call(), test::soon());
        ASSERT_TRUE(status.ok()) << status.error().message;
        ASSERT_EQ(faultOf(cases[i], rank, Reduction::kSum, *buffers[i]), "") << i;
      }
    });
    if (HasFailure()) return;
  }
}

// Each writes what the next one reads.
TEST_P(Network_EveryKind, AnnouncedForOneVector_RunOneAfterTheOther) {
  for (const std::size_t count : {1, 40'000}) {
    constexpr int kSize = 3, kTimes = 5;
    auto executors = test::connected(GetParam(), kSize);
    test::inThreads(kSize, [&](int rank) {
      Executor& executor = *executors[static_cast<std::size_t>(rank)];
      std::vector<float> vector(count, 1);
      auto* const bytes = reinterpret_cast<std::byte*>(vector.data());
      const ConstBlock input{bytes, count};
      const Block output{bytes, count};
      const Call call{
          .kind = Kind::kAllReduce, .type = ElementType::kFloat32, .inputs = {&input, 1}, .outputs = {&output, 1}};
      for (int i = 0; i < kTimes; ++i) executor.announce(call);
      for (int i = 0; i < kTimes; ++i) {
        const Status status = executor.run(call, test::soon());
        ASSERT_TRUE(status.ok()) << status.error().message;
      }
      EXPECT_EQ(vector, std::vector<float>(count, 243));
    });
    if (HasFailure()) return;
  }
}

TEST_P(Network_EveryKind, AverageAndMaximum_GiveThePlainResult) {
  constexpr int kSize = 4;
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kRing, Algorithm::kDoubleTree, Algorithm::kDirect,
                                    Algorithm::kBinomial, Algorithm::kTwoLevelRails}) {
    auto executors = test::connected(GetParam(), kSize, [&](NetworkOptions& options) {
      options.choices.prefer(algorithm);
      twoRanksAHost(kSize)(options);
    });
    test::inThreads(kSize, [&](int rank) {
      for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter}) {
        for (const Reduction reduction : {Reduction::kAverage, Reduction::kMax}) {
          const Case c{kind, ElementType::kFloat32, 1000, kSize, 1, false, false};
          ASSERT_TRUE(runsRight(*executors[static_cast<std::size_t>(rank)], c, rank, reduction)) << nameOf(algorithm);
        }
      }
    });
    if (HasFailure()) return;
  }
}

TEST_P(Network_EveryKind, AverageOfLargeHalves_DoesNotOverflow) {
  constexpr int kSize = 4;
  for (int a = 0; a < kAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    auto executors = test::connected(GetParam(), kSize, [&](NetworkOptions& options) {
      options.choices.prefer(algorithm);
      options.hostOf = {0, 0, 1, 1};
    });
    test::inThreads(kSize, [&](int rank) {
      for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter}) {
        if (findAlgorithm(kind, algorithm) == nullptr) continue;
        for (const bool inPlace : {false, true}) {
          const Case c{kind, ElementType::kFloat16, 1001, kSize, 1, false, inPlace};
          ASSERT_TRUE(test::averagesLargeHalves(*executors[static_cast<std::size_t>(rank)], c, rank))
              << nameOf(algorithm);
        }
      }
    });
    if (HasFailure()) return;
  }
}

TEST_P(Network_EveryKind, AverageOfLargeHalves_InSeveralSlices_DoesNotOverflow) {
  constexpr int kSize = 4;
  auto executors = test::connected(GetParam(), kSize);
  test::inThreads(kSize, [&](int rank) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kReduce, Kind::kReduceScatter}) {
      const Case c{kind, ElementType::kFloat16, 1'500'001, kSize, 1, false, rank % 2 == 0};
      ASSERT_TRUE(test::averagesLargeHalves(*executors[static_cast<std::size_t>(rank)], c, rank));
    }
  });
}

// Random numbers, so that another order of additions gives other bits.
TEST_P(Network_EveryKind, AllReduce_GivesAllRanksTheSameBitsEveryTime) {
  constexpr int kSize = 5;
  constexpr std::size_t kCount = 3001;
  for (const AlgorithmRow& row : algorithms()) {
    if (row.kind != Kind::kAllReduce) continue;
    auto executors =
        test::connected(GetParam(), kSize, [&](NetworkOptions& options) { options.choices.prefer(row.algorithm); });
    std::vector<std::vector<std::byte>> results(kSize);
    for (int round = 0; round < 3; ++round) {
      test::inThreads(kSize, [&](int rank) {
        Buffers b(Kind::kAllReduce, ElementType::kFloat32, rank, kSize);
        b.outputs({kCount}).inputs({kCount});
        std::mt19937 random(static_cast<unsigned>(rank));
        std::vector<float> values(kCount);
        for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
        std::memcpy(b.inputData(0), values.data(), kCount * sizeof(float));
        ASSERT_TRUE(executors[static_cast<std::size_t>(rank)]->run(b.call(), test::soon()).ok());
        auto& result = results[static_cast<std::size_t>(rank)];
        if (round > 0) {
          EXPECT_EQ(result, b.outputBytes(0)) << "round " << round;
        }
        result = b.outputBytes(0);
      });
      for (const auto& result : results) EXPECT_EQ(result, results[0]) << nameOf(row.algorithm);
    }
  }
}

}  // namespace
}  // namespace gloo_bypass::collectives
