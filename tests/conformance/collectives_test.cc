// Every collective of Gloo's newer API, for 1 to 5 ranks, several types and sizes.
#include <cstdint>
#include <cstring>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>
#include <gloo/types.h>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {
namespace {

constexpr int kMaxRanks = 5;
const std::vector<std::size_t> kCounts = {1, 2, 7, 1000, 65537};
constexpr std::size_t kLargeCount = 1 << 20;

class Collectives : public Conformance {
 protected:
  // One mesh for each number of ranks, `body` for each count in it.
  void forAll(const std::function<void(ContextPtr, std::size_t)>& body) {
    for (int size = 1; size <= kMaxRanks; ++size) {
      run(size, [&](ContextPtr context) {
        for (const std::size_t count : kCounts) body(context, count);
      });
    }
  }
};

template <typename T>
std::vector<T> samples(int rank, std::size_t count, int round = 0) {
  std::vector<T> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = sample<T>(rank, i, round);
  return v;
}

template <typename T>
void expectSum(const std::vector<T>& actual, int size, int round = 0) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    T sum{};
    for (int rank = 0; rank < size; ++rank) sum = static_cast<T>(sum + sample<T>(rank, i, round));
    ASSERT_EQ(sum, actual[i]) << "element " << i << " of " << actual.size();
  }
}

template <typename T>
void allreduceOnce(const ContextPtr& context, std::size_t count, ::gloo::AllreduceOptions::Algorithm algorithm,
                   std::size_t segmentBytes = 0) {
  std::vector<T> data = samples<T>(context->rank, count);
  ::gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), count);
  options.setAlgorithm(algorithm);
  options.setReduceFunction([](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<T>(c, a, b, n); });
  if (segmentBytes > 0) options.setMaxSegmentSize(segmentBytes);
  ::gloo::allreduce(options);
  expectSum(data, context->size);
}

using Algorithm = ::gloo::AllreduceOptions::Algorithm;

TEST_P(Collectives, AllreduceRing_AllSizesAndTypes_Sums) {
  forAll([](const ContextPtr& context, std::size_t count) {
    allreduceOnce<float>(context, count, Algorithm::RING);
    allreduceOnce<double>(context, count, Algorithm::RING);
    allreduceOnce<std::int8_t>(context, count, Algorithm::RING);
    allreduceOnce<std::uint8_t>(context, count, Algorithm::RING);
    allreduceOnce<std::int32_t>(context, count, Algorithm::RING);
    allreduceOnce<std::int64_t>(context, count, Algorithm::RING);
  });
}

TEST_P(Collectives, AllreduceRing_Half_Sums) {
  run(3, [](const ContextPtr& context) {
    constexpr std::size_t kCount = 1001;
    std::vector<::gloo::float16> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      data[i] = ::gloo::cpu_float2half_rn(sample<float>(context->rank, i));
    }
    ::gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), kCount);
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<::gloo::float16>(c, a, b, n); });
    ::gloo::allreduce(options);
    for (std::size_t i = 0; i < kCount; ++i) {
      const float sum = sample<float>(0, i) + sample<float>(1, i) + sample<float>(2, i);
      ASSERT_EQ(sum, ::gloo::cpu_half2float(data[i]));
    }
  });
}

TEST_P(Collectives, AllreduceRing_ManySegments_Sums) {
  run(4, [](const ContextPtr& context) { allreduceOnce<float>(context, 65537, Algorithm::RING, 4096); });
}

TEST_P(Collectives, AllreduceRing_SeveralMiB_Sums) {
  for (const int size : {2, 3}) {
    run(size, [](const ContextPtr& context) { allreduceOnce<float>(context, kLargeCount, Algorithm::RING); });
  }
}

TEST_P(Collectives, AllreduceBcube_AllSizes_Sums) {
  forAll([](const ContextPtr& context, std::size_t count) {
    allreduceOnce<float>(context, count, Algorithm::BCUBE);
    allreduceOnce<std::int64_t>(context, count, Algorithm::BCUBE);
  });
}

TEST_P(Collectives, Allreduce_SeveralInputs_SumsAll) {
  run(3, [](const ContextPtr& context) {
    constexpr std::size_t kCount = 333;
    std::vector<float> a = samples<float>(context->rank, kCount), b = samples<float>(context->rank, kCount);
    std::vector<float> out(kCount);
    ::gloo::AllreduceOptions options(context);
    options.setInputs(std::vector<float*>{a.data(), b.data()}, kCount);
    options.setOutputs(std::vector<float*>{out.data()}, kCount);
    options.setReduceFunction(
        [](void* c, const void* x, const void* y, std::size_t n) { ::gloo::sum<float>(c, x, y, n); });
    ::gloo::allreduce(options);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(2 * (sample<float>(0, i) + sample<float>(1, i) + sample<float>(2, i)), out[i]);
    }
  });
}

TEST_P(Collectives, Allgather_AllSizes_Concatenates) {
  forAll([](const ContextPtr& context, std::size_t count) {
    std::vector<float> in = samples<float>(context->rank, count);
    std::vector<float> out(count * static_cast<std::size_t>(context->size));
    ::gloo::AllgatherOptions options(context);
    options.setInput(in.data(), count);
    options.setOutput(out.data(), out.size());
    ::gloo::allgather(options);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(sample<float>(static_cast<int>(i / count), i % count), out[i]);
    }
  });
}

TEST_P(Collectives, Allgatherv_UnequalSizes_Concatenates) {
  forAll([](const ContextPtr& context, std::size_t count) {
    std::vector<std::size_t> counts;
    for (int rank = 0; rank < context->size; ++rank) counts.push_back(count + static_cast<std::size_t>(rank) * 3);
    std::vector<std::int32_t> expected;
    for (int rank = 0; rank < context->size; ++rank) {
      const auto part = samples<std::int32_t>(rank, counts[static_cast<std::size_t>(rank)]);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    auto in = samples<std::int32_t>(context->rank, counts[static_cast<std::size_t>(context->rank)]);
    std::vector<std::int32_t> out(expected.size());
    ::gloo::AllgathervOptions options(context);
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), counts);
    ::gloo::allgatherv(options);
    ASSERT_EQ(expected, out);
  });
}

TEST_P(Collectives, Alltoall_AllSizes_Transposes) {
  forAll([](const ContextPtr& context, std::size_t count) {
    const auto size = static_cast<std::size_t>(context->size);
    std::vector<std::uint64_t> in(count * size), out(count * size);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::size_t>(context->rank) * 1000003 + i;
    ::gloo::AlltoallOptions options(context);
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), out.size());
    ::gloo::alltoall(options);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ((i / count) * 1000003 + static_cast<std::size_t>(context->rank) * count + i % count, out[i]);
    }
  });
}

TEST_P(Collectives, Alltoallv_UnequalSizes_Transposes) {
  forAll([](const ContextPtr& context, std::size_t count) {
    // Rank r sends count + r + d elements to rank d.
    const auto elements = [&](int from, int to) { return static_cast<std::int64_t>(count) + from + to; };
    std::vector<std::int64_t> inCounts, outCounts;
    std::vector<std::int32_t> in, expected;
    for (int peer = 0; peer < context->size; ++peer) {
      inCounts.push_back(elements(context->rank, peer));
      outCounts.push_back(elements(peer, context->rank));
      for (std::int64_t i = 0; i < inCounts.back(); ++i) in.push_back(context->rank * 100 + peer);
      for (std::int64_t i = 0; i < outCounts.back(); ++i) expected.push_back(peer * 100 + context->rank);
    }
    std::vector<std::int32_t> out(expected.size());
    ::gloo::AlltoallvOptions options(context);
    options.setInput(in.data(), inCounts);
    options.setOutput(out.data(), outCounts);
    ::gloo::alltoallv(options);
    ASSERT_EQ(expected, out);
  });
}

TEST_P(Collectives, Broadcast_EveryRoot_Copies) {
  forAll([](const ContextPtr& context, std::size_t count) {
    for (int root = 0; root < context->size; ++root) {
      std::vector<std::int16_t> data(count);
      if (context->rank == root) data = samples<std::int16_t>(root, count);
      ::gloo::BroadcastOptions options(context);
      options.setOutput(data.data(), count);
      options.setRoot(root);
      ::gloo::broadcast(options);
      ASSERT_EQ(samples<std::int16_t>(root, count), data);
    }
  });
}

TEST_P(Collectives, Gather_EveryRoot_Concatenates) {
  forAll([](const ContextPtr& context, std::size_t count) {
    for (int root = 0; root < context->size; ++root) {
      std::vector<float> in = samples<float>(context->rank, count);
      std::vector<float> out(context->rank == root ? count * static_cast<std::size_t>(context->size) : 0);
      ::gloo::GatherOptions options(context);
      options.setInput(in.data(), count);
      if (context->rank == root) options.setOutput(out.data(), out.size());
      options.setRoot(root);
      ::gloo::gather(options);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(sample<float>(static_cast<int>(i / count), i % count), out[i]);
      }
    }
  });
}

TEST_P(Collectives, Reduce_EveryRoot_Sums) {
  forAll([](const ContextPtr& context, std::size_t count) {
    for (int root = 0; root < context->size; ++root) {
      std::vector<double> in = samples<double>(context->rank, count), out(count);
      ::gloo::ReduceOptions options(context);
      options.setInput(in.data(), count);
      options.setOutput(out.data(), count);
      options.setRoot(root);
      options.setReduceFunction(
          [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<double>(c, a, b, n); });
      ::gloo::reduce(options);
      if (context->rank == root) expectSum(out, context->size);
    }
  });
}

TEST_P(Collectives, Scatter_EveryRoot_Distributes) {
  forAll([](const ContextPtr& context, std::size_t count) {
    for (int root = 0; root < context->size; ++root) {
      std::vector<std::vector<float>> in;
      std::vector<float*> pointers;
      for (int rank = 0; rank < context->size && context->rank == root; ++rank) {
        in.push_back(samples<float>(rank, count, root));
        pointers.push_back(in.back().data());
      }
      std::vector<float> out(count);
      ::gloo::ScatterOptions options(context);
      if (context->rank == root) options.setInputs(pointers, count);
      options.setOutput(out.data(), count);
      options.setRoot(root);
      ::gloo::scatter(options);
      ASSERT_EQ(samples<float>(context->rank, count, root), out);
    }
  });
}

TEST_P(Collectives, Barrier_ManyRounds_NobodyIsARoundAhead) {
  for (int size = 2; size <= kMaxRanks; ++size) {
    std::vector<std::atomic<int>> rounds(static_cast<std::size_t>(size));
    run(size, [&](const ContextPtr& context) {
      for (int round = 1; round <= 20; ++round) {
        rounds[static_cast<std::size_t>(context->rank)] = round;
        ::gloo::BarrierOptions options(context);
        ::gloo::barrier(options);
        for (const auto& other : rounds) ASSERT_GE(other.load(), round);
        ::gloo::BarrierOptions again(context);
        ::gloo::barrier(again);
      }
    });
  }
}

TEST_P(Collectives, Allreduce_ManyRounds_EachSumsItsOwn) {
  run(3, [](const ContextPtr& context) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::int32_t> data = samples<std::int32_t>(context->rank, static_cast<std::size_t>(round) + 1, round);
      ::gloo::AllreduceOptions options(context);
      options.setOutput(data.data(), data.size());
      options.setReduceFunction(
          [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<std::int32_t>(c, a, b, n); });
      ::gloo::allreduce(options);
      expectSum(data, context->size, round);
    }
  });
}

TEST_P(Collectives, ConcurrentCollectives_DifferentTags_DoNotMix) {
  constexpr int kThreads = 4;
  run(3, [](const ContextPtr& context) {
    inThreads(kThreads, [&](int thread) {
      for (int round = 0; round < 25; ++round) {
        const std::size_t count = 1 + static_cast<std::size_t>(thread) * 5000 + static_cast<std::size_t>(round);
        std::vector<float> data = samples<float>(context->rank, count, thread);
        ::gloo::AllreduceOptions options(context);
        options.setTag(static_cast<std::uint32_t>(thread + 1));
        options.setOutput(data.data(), count);
        options.setReduceFunction(
            [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<float>(c, a, b, n); });
        ::gloo::allreduce(options);
        expectSum(data, context->size, thread);
      }
    });
  });
}

GLOO_BYPASS_CONFORMANCE(Collectives);

}  // namespace
}  // namespace gloo_bypass::test
