// Gloo's older algorithms, on bound buffers.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <gloo/allgather_ring.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/pairwise_exchange.h>
#include <gloo/reduce_scatter.h>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {
namespace {

const std::vector<int> kCounts = {1, 64, 1000, 65537};
constexpr int kRounds = 3;

class Algorithms : public Conformance {
 protected:
  template <typename AllreduceT>
  void checkAllreduce(int largestSize) {
    for (int size = 1; size <= largestSize; ++size) {
      run(size, [](const ContextPtr& context) {
        for (const int count : kCounts) {
          std::vector<float> data(static_cast<std::size_t>(count));
          AllreduceT algorithm(context, std::vector<float*>{data.data()}, count);
          for (int round = 0; round < kRounds; ++round) {
            for (std::size_t i = 0; i < data.size(); ++i) data[i] = sample<float>(context->rank, i, round);
            algorithm.run();
            for (std::size_t i = 0; i < data.size(); ++i) {
              float sum = 0;
              for (int rank = 0; rank < context->size; ++rank) sum += sample<float>(rank, i, round);
              ASSERT_EQ(sum, data[i]) << "element " << i << " of " << count << ", round " << round;
            }
          }
        }
      });
    }
  }
};

TEST_P(Algorithms, AllreduceRing_AllSizes_Sums) { checkAllreduce<::gloo::AllreduceRing<float>>(5); }

TEST_P(Algorithms, AllreduceRingChunked_AllSizes_Sums) { checkAllreduce<::gloo::AllreduceRingChunked<float>>(5); }

TEST_P(Algorithms, AllreduceHalvingDoubling_AllSizes_Sums) {
  checkAllreduce<::gloo::AllreduceHalvingDoubling<float>>(5);
}

// A barrier between rounds: this algorithm reports free inboxes only to its neighbours of the first step, so that a
// fast rank's next round overwrites a slow one's (over TCP too, one run in dozens).
TEST_P(Algorithms, AllreduceBcube_PowersOfTwo_Sums) {
  for (const int size : {1, 2, 4}) {
    run(size, [](const ContextPtr& context) {
      constexpr int kCount = 1000;
      std::vector<float> data(kCount);
      ::gloo::AllreduceBcube<float> algorithm(context, std::vector<float*>{data.data()}, kCount);
      for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = sample<float>(context->rank, i, round);
        algorithm.run();
        for (std::size_t i = 0; i < data.size(); ++i) {
          float sum = 0;
          for (int rank = 0; rank < context->size; ++rank) sum += sample<float>(rank, i, round);
          ASSERT_EQ(sum, data[i]);
        }
        ::gloo::BarrierOptions options(context);
        ::gloo::barrier(options);
      }
    });
  }
}

TEST_P(Algorithms, AllreduceRingChunked_SeveralMiB_Sums) {
  run(3, [](const ContextPtr& context) {
    constexpr int kCount = 1 << 20;
    std::vector<float> data(kCount);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = sample<float>(context->rank, i);
    ::gloo::AllreduceRingChunked<float> algorithm(context, std::vector<float*>{data.data()}, kCount);
    algorithm.run();
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(sample<float>(0, i) + sample<float>(1, i) + sample<float>(2, i), data[i]);
    }
  });
}

TEST_P(Algorithms, BroadcastOneToAll_EveryRoot_Copies) {
  for (int size = 1; size <= 4; ++size) {
    run(size, [](const ContextPtr& context) {
      for (int root = 0; root < context->size; ++root) {
        for (const int count : kCounts) {
          std::vector<float> data(static_cast<std::size_t>(count), -1);
          ::gloo::BroadcastOneToAll<float> algorithm(context, std::vector<float*>{data.data()},
                                                     static_cast<std::size_t>(count), root);
          if (context->rank == root) {
            for (std::size_t i = 0; i < data.size(); ++i) data[i] = sample<float>(root, i);
          }
          algorithm.run();
          for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(sample<float>(root, i), data[i]);
        }
      }
    });
  }
}

TEST_P(Algorithms, AllgatherRing_AllSizes_Concatenates) {
  for (int size = 2; size <= 4; ++size) {
    run(size, [](const ContextPtr& context) {
      for (const int count : kCounts) {
        const auto n = static_cast<std::size_t>(count);
        std::vector<float> in(n), out(n * static_cast<std::size_t>(context->size));
        for (std::size_t i = 0; i < n; ++i) in[i] = sample<float>(context->rank, i);
        ::gloo::AllgatherRing<float> algorithm(context, {in.data()}, out.data(), count);
        algorithm.run();
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(sample<float>(static_cast<int>(i / n), i % n), out[i]);
        }
      }
    });
  }
}

template <typename BarrierT>
void barrierRounds(const ContextPtr& context, std::vector<std::atomic<int>>& rounds) {
  BarrierT barrier(context);
  for (int round = 1; round <= 10; ++round) {
    rounds[static_cast<std::size_t>(context->rank)] = round;
    barrier.run();
    for (const auto& other : rounds) ASSERT_GE(other.load(), round);
    barrier.run();
  }
}

TEST_P(Algorithms, Barriers_ManyRounds_NobodyIsARoundAhead) {
  for (int size = 2; size <= 5; ++size) {
    std::vector<std::atomic<int>> allToAll(static_cast<std::size_t>(size)), allToOne(static_cast<std::size_t>(size));
    run(size, [&](const ContextPtr& context) {
      barrierRounds<::gloo::BarrierAllToAll>(context, allToAll);
      barrierRounds<::gloo::BarrierAllToOne>(context, allToOne);
    });
  }
}

TEST_P(Algorithms, PairwiseExchange_PowersOfTwo_Completes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "Gloo's pairwise_exchange.h frees with delete what it made with new[]";
#endif
  for (const int size : {2, 4}) {
    run(size, [](const ContextPtr& context) {
      ::gloo::PairwiseExchange algorithm(context, 4096, static_cast<int>(std::log2(context->size)));
      for (int round = 0; round < kRounds; ++round) algorithm.run();
    });
  }
}

TEST_P(Algorithms, ReduceScatterHalvingDoubling_AllSizes_Sums) {
  for (int size = 1; size <= 4; ++size) {
    run(size, [](const ContextPtr& context) {
      const int perRank = 250;
      const auto n = static_cast<std::size_t>(perRank) * static_cast<std::size_t>(context->size);
      std::vector<float> data(n);
      for (std::size_t i = 0; i < n; ++i) data[i] = sample<float>(context->rank, i);
      const std::vector<int> counts(static_cast<std::size_t>(context->size), perRank);
      ::gloo::ReduceScatterHalvingDoubling<float> algorithm(context, std::vector<float*>{data.data()},
                                                            static_cast<int>(n), counts);
      algorithm.run();
      for (std::size_t i = 0; i < static_cast<std::size_t>(perRank); ++i) {
        const std::size_t at = static_cast<std::size_t>(context->rank) * static_cast<std::size_t>(perRank) + i;
        float sum = 0;
        for (int rank = 0; rank < context->size; ++rank) sum += sample<float>(rank, at);
        ASSERT_EQ(sum, data[i]);
      }
    });
  }
}

GLOO_BYPASS_CONFORMANCE(Algorithms);

}  // namespace
}  // namespace gloo_bypass::test
