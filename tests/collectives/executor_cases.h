// What every Executor must do, whatever it runs over: cases for ranks that are threads of one process. An executor's
// test makes the ranks and calls these.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "collectives/executor.h"
#include "collectives/operation.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {

using Ranks = std::vector<std::unique_ptr<Executor>>;

inline TimePoint soon() { return monotonicNow() + std::chrono::seconds(20); }

// Runs `body(rank)` on a thread for each rank, and waits for all.
inline void onEveryRank(std::size_t ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) threads.emplace_back(body, static_cast<int>(rank));
  for (std::thread& thread : threads) thread.join();
}

// The buffers of one rank: blocks of int64 elements, so that sums of whole numbers are exact.
struct Side {
  std::vector<std::vector<std::int64_t>> in, out;
  bool inPlace = false;

  Call call(Kind kind, int root, int rank, bool uneven) {
    inputs.clear();
    outputs.clear();
    for (auto& block : in) {
      inputs.push_back({reinterpret_cast<const std::byte*>(block.data()), block.size()});
    }
    for (auto& block : out) outputs.push_back({reinterpret_cast<std::byte*>(block.data()), block.size()});
    if (inPlace && !inputs.empty() && !outputs.empty()) {
      // The output that has this rank's input, in the kinds that have one.
      const std::size_t self = outputs.size() > 1 ? static_cast<std::size_t>(rank) : 0;
      const std::size_t own = inputs.size() > 1 ? static_cast<std::size_t>(rank) : 0;
      out[self] = in[own];
      inputs[own].data = reinterpret_cast<const std::byte*>(out[self].data());
    }
    return {.kind = kind,
            .type = ElementType::kInt64,
            .reduction = Reduction::kSum,
            .root = root,
            .inputs = inputs,
            .outputs = outputs,
            .uneven = uneven};
  }

 private:
  std::vector<ConstBlock> inputs;
  std::vector<Block> outputs;
};

// Element i of the block that `from` has for `to` (0 if it has one for all).
inline std::int64_t valueOf(int from, int to, std::size_t i) {
  return from * 1'000'003 + to * 10'007 + static_cast<std::int64_t>(i);
}
inline std::vector<std::int64_t> blockOf(int from, int to, std::size_t count) {
  std::vector<std::int64_t> block(count);
  for (std::size_t i = 0; i < count; ++i) block[i] = valueOf(from, to, i);
  return block;
}
inline std::vector<std::int64_t> sumOf(int ranks, int to, std::size_t count) {
  std::vector<std::int64_t> sum(count);
  for (int from = 0; from < ranks; ++from) {
    for (std::size_t i = 0; i < count; ++i) sum[i] += valueOf(from, to, i);
  }
  return sum;
}

// Count of the block between two ranks: uneven ones differ, and some are empty.
inline std::size_t countOf(std::size_t count, int from, int to, bool uneven) {
  return uneven ? count * static_cast<std::size_t>((from * 7 + to * 3) % 5) / 3 : count;
}

// Inputs and zeroed outputs of a rank, and what its outputs must hold afterwards.
inline void fill(Side& side, std::vector<std::vector<std::int64_t>>& expected, Kind kind, int root, int rank, int ranks,
                 std::size_t count, bool uneven) {
  const auto size = [&](int from, int to) { return countOf(count, from, to, uneven); };
  const bool isRoot = rank == root;
  switch (kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      side.in = {blockOf(rank, 0, count)};
      if (kind == Kind::kAllReduce || isRoot) expected = {sumOf(ranks, 0, count)};
      break;
    case Kind::kReduceScatter:  // the blocks for one place have one count
      for (int to = 0; to < ranks; ++to) side.in.push_back(blockOf(rank, to, size(0, to)));
      expected = {sumOf(ranks, rank, size(0, rank))};
      break;
    case Kind::kAllGather:
    case Kind::kGather:
      side.in = {blockOf(rank, 0, size(rank, 0))};
      for (int from = 0; from < ranks && (kind == Kind::kAllGather || isRoot); ++from) {
        expected.push_back(blockOf(from, 0, size(from, 0)));
      }
      break;
    case Kind::kBroadcast:
      if (isRoot) side.in = {blockOf(root, 0, count)};
      expected = {blockOf(root, 0, count)};
      break;
    case Kind::kScatter:
      for (int to = 0; to < ranks && isRoot; ++to) side.in.push_back(blockOf(rank, to, size(root, to)));
      expected = {blockOf(root, rank, size(root, rank))};
      break;
    case Kind::kAllToAll:
      for (int other = 0; other < ranks; ++other) {
        side.in.push_back(blockOf(rank, other, size(rank, other)));
        expected.push_back(blockOf(other, rank, size(other, rank)));
      }
      break;
    case Kind::kBarrier:
      break;
  }
  for (const auto& block : expected) side.out.emplace_back(block.size());
}

// One operation at all ranks.
inline void runAndCheck(Ranks& ranks, Kind kind, std::size_t count, int root, bool uneven, bool inPlace) {
  const int size = static_cast<int>(ranks.size());
  onEveryRank(ranks.size(), [&](int rank) {
    Side side;
    side.inPlace = inPlace && !uneven;
    std::vector<std::vector<std::int64_t>> expected;
    fill(side, expected, kind, root, rank, size, count, uneven);
    const Call call = side.call(kind, root, rank, uneven);
    ASSERT_EQ(faultOf(call, rank, size), "");
    const Status status = ranks[static_cast<std::size_t>(rank)]->run(call, soon());
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(side.out, expected) << nameOf(kind) << " of " << count << " at rank " << rank << " of " << size;
  });
}

inline constexpr Kind kEveryKind[kKinds] = {Kind::kAllReduce, Kind::kReduce,   Kind::kReduceScatter,
                                            Kind::kAllGather, Kind::kGather,   Kind::kBroadcast,
                                            Kind::kScatter,   Kind::kAllToAll, Kind::kBarrier};
inline constexpr std::size_t kCounts[] = {0, 1, 5, 6, 100, 4'097, 30'001, 200'003};

// All kinds and counts, each root in turn, even and uneven, in place or not.
inline void runEveryKind(Ranks& ranks, std::size_t largest) {
  int root = 0;
  for (const Kind kind : kEveryKind) {
    for (const std::size_t count : kCounts) {
      if (count > largest) continue;
      for (const bool uneven : {false, true}) {
        for (const bool inPlace : {false, true}) runAndCheck(ranks, kind, count, root, uneven, inPlace);
      }
      root = (root + 1) % static_cast<int>(ranks.size());
    }
  }
}

}  // namespace gloo_bypass::collectives
