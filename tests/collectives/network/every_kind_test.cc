// Every kind of operation with every algorithm, over every medium: results against a plain loop.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/collectives/network/ranks.h"

namespace gloo_bypass::collectives {
namespace {

using test::Buffers;
using test::Medium;

class Network_EveryKind : public ::testing::TestWithParam<Medium> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Network_EveryKind);
INSTANTIATE_TEST_SUITE_P(Media, Network_EveryKind, ::testing::ValuesIn(test::media()), test::nameOf);

constexpr std::size_t kCounts[] = {0, 1, 7, 1000, 5000};
constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kInt64,
                                  ElementType::kUint8};

double sumOf(int size, std::size_t block, std::size_t index, Reduction reduction) {
  double sum = 0, most = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum += Buffers::value(rank, block, index);
    most = std::max(most, Buffers::value(rank, block, index));
  }
  return reduction == Reduction::kMax ? most : reduction == Reduction::kAverage ? sum / size : sum;
}

// A count for a place, where they differ; some are zero.
std::size_t uneven(std::size_t count, int place) {
  return place % 3 == 1 ? 0 : count + static_cast<std::size_t>(place);
}

struct Case {
  Kind kind;
  ElementType type;
  std::size_t count;
  int size, root;
  bool uneven, inPlace;
};

std::vector<std::size_t> counts(const Case& c) {
  std::vector<std::size_t> all;
  for (int place = 0; place < c.size; ++place) all.push_back(c.uneven ? uneven(c.count, place) : c.count);
  return all;
}

Buffers buffersFor(const Case& c, int rank) {
  Buffers b(c.kind, c.type, rank, c.size);
  const std::size_t own = counts(c)[static_cast<std::size_t>(rank)];
  const bool isRoot = rank == c.root;
  const auto self = static_cast<std::size_t>(rank);
  b.call().root = c.root;
  b.call().uneven = c.uneven;
  switch (c.kind) {
    case Kind::kAllReduce:
      b.outputs({c.count}).inputs({c.count});
      if (c.inPlace) b.inPlace(0, 0);
      break;
    case Kind::kReduce:
      if (isRoot) b.outputs({c.count});
      b.inputs({c.count});
      if (isRoot && c.inPlace) b.inPlace(0, 0);
      break;
    case Kind::kReduceScatter:
      b.outputs({own}).inputs(counts(c));
      if (c.inPlace) b.inPlace(self, 0);
      break;
    case Kind::kAllGather:
      b.outputs(counts(c)).inputs({own});
      if (c.inPlace) b.inPlace(0, self);
      break;
    case Kind::kGather:
      if (isRoot) b.outputs(counts(c));
      b.inputs({own});
      if (isRoot && c.inPlace) b.inPlace(0, self);
      break;
    case Kind::kBroadcast:
      if (!isRoot || !c.inPlace) b.outputs({c.count});
      if (isRoot) b.inputs({c.count});
      break;
    case Kind::kScatter:
      b.outputs({own});
      if (isRoot) b.inputs(counts(c));
      if (isRoot && c.inPlace) b.inPlace(self, 0);
      break;
    case Kind::kAllToAll: {
      // From rank s to rank d: as many as the place s + d has.
      std::vector<std::size_t> each;
      for (int other = 0; other < c.size; ++other) each.push_back(c.uneven ? uneven(c.count, rank + other) : c.count);
      b.outputs(each).inputs(each);
      if (c.inPlace) b.inPlace(self, self);
      break;
    }
    case Kind::kBarrier:
      break;
  }
  b.fill();
  return b;
}

// The value that belongs at an index of an output block.
double expected(const Case& c, int rank, std::size_t block, std::size_t index, Reduction reduction) {
  const auto self = static_cast<std::size_t>(rank);
  switch (c.kind) {
    case Kind::kReduceScatter:
      return sumOf(c.size, self, index, reduction);
    case Kind::kAllGather:
    case Kind::kGather:
      return Buffers::value(static_cast<int>(block), 0, index);
    case Kind::kBroadcast:
      return Buffers::value(c.root, 0, index);
    case Kind::kScatter:
      return Buffers::value(c.root, self, index);
    case Kind::kAllToAll:
      return Buffers::value(static_cast<int>(block), self, index);
    default:
      return sumOf(c.size, 0, index, reduction);
  }
}

::testing::AssertionResult runsRight(NetworkExecutor& executor, const Case& c, int rank, Reduction reduction) {
  Buffers b = buffersFor(c, rank);
  b.call().reduction = reduction;
  const std::string what = std::string(nameOf(c.kind)) + " of " + std::to_string(c.count) + " " + nameOf(c.type) +
                           ", " + nameOf(reduction) + ", " + std::to_string(c.size) + " ranks, root " +
                           std::to_string(c.root) + (c.uneven ? ", uneven" : "") + (c.inPlace ? ", in place" : "") +
                           ", rank " + std::to_string(rank);
  if (std::string fault = faultOf(b.call(), rank, c.size); !fault.empty())
    return ::testing::AssertionFailure() << fault;
  const Status status = executor.run(b.call(), test::soon());
  if (!status.ok()) return ::testing::AssertionFailure() << what << ": " << status.error().message;
  for (std::size_t block = 0; block < b.call().outputs.size(); ++block) {
    for (std::size_t i = 0; i < b.call().outputs[block].count; ++i) {
      if (b.output(block, i) == expected(c, rank, block, i, reduction)) continue;
      return ::testing::AssertionFailure() << what << ": block " << block << " index " << i << " is "
                                           << b.output(block, i) << ", not " << expected(c, rank, block, i, reduction);
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<Case> casesOf(Kind kind, int size) {
  std::vector<Case> cases;
  const bool hasBlocks =
      kind != Kind::kAllReduce && kind != Kind::kReduce && kind != Kind::kBroadcast && kind != Kind::kBarrier;
  std::size_t i = 0;
  for (const std::size_t count : kCounts) {
    for (const bool ragged : {false, true}) {
      if (ragged && !hasBlocks) continue;
      const auto turn = static_cast<int>(i);
      cases.push_back({kind, kTypes[i % 4], count, size, turn % size, ragged, i % 2 == 1});
      ++i;
    }
  }
  return cases;
}

TEST_P(Network_EveryKind, AnyCountRootAndAlgorithm_GivesThePlainResult) {
  for (const int size : {1, 2, 3, 4, 5, 8}) {
    for (int a = 0; a < kAlgorithms; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      std::vector<int> hostOf;
      for (int rank = 0; rank < size; ++rank) hostOf.push_back(rank / 2);
      auto executors = test::connected(GetParam(), size, [&](NetworkOptions& options) {
        options.algorithm = algorithm;
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

TEST_P(Network_EveryKind, SeveralSlices_GiveThePlainResult) {
  for (const int size : {2, 3}) {
    auto executors = test::connected(GetParam(), size);
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

TEST_P(Network_EveryKind, AverageAndMaximum_GiveThePlainResult) {
  constexpr int kSize = 4;
  for (const Algorithm algorithm :
       {Algorithm::kOneShot, Algorithm::kRing, Algorithm::kDoubleTree, Algorithm::kDirect, Algorithm::kBinomial}) {
    auto executors =
        test::connected(GetParam(), kSize, [&](NetworkOptions& options) { options.algorithm = algorithm; });
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

// Random numbers, so that another order of additions gives other bits.
TEST_P(Network_EveryKind, AllReduce_GivesAllRanksTheSameBitsEveryTime) {
  constexpr int kSize = 5;
  constexpr std::size_t kCount = 3001;
  for (const Algorithm algorithm :
       {Algorithm::kOneShot, Algorithm::kDirect, Algorithm::kRing, Algorithm::kBidirectionalRing,
        Algorithm::kHalvingDoubling, Algorithm::kDoubleTree}) {
    auto executors =
        test::connected(GetParam(), kSize, [&](NetworkOptions& options) { options.algorithm = algorithm; });
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
      for (const auto& result : results) EXPECT_EQ(result, results[0]) << nameOf(algorithm);
    }
  }
}

}  // namespace
}  // namespace gloo_bypass::collectives
