// One all-reduce, ready to be run again and again on the same data: Gloo's algorithms behind one interface.
// Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <gloo/context.h>

#include "tools/all_reduce_perf/perf_options.h"

namespace gloo_bypass {

class Collective {
 public:
  virtual ~Collective() noexcept(false) = default;
  // In place, blocking; all ranks call it. Throws what Gloo throws.
  virtual void run() = 0;
};

struct CollectiveOptions {
  DataType dataType = DataType::kFloat;
  ReduceOp reduceOp = ReduceOp::kSum;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kRing;
  std::size_t segmentBytes = 0;  // 0: Gloo's default
  std::chrono::milliseconds timeout{30'000};
};

// ring and bcube: gloo::allreduce on a new unbound buffer and a new tag a call, as PyTorch's ProcessGroupGloo does.
// halving_doubling and ring_chunked: Gloo's older classes, whose bound buffers live as long as the Collective.
// `data` (count elements) and `nextTag` must outlive it; nextTag counts the context's collectives, the same on all
// ranks.
std::unique_ptr<Collective> makeCollective(const CollectiveOptions& options,
                                           const std::shared_ptr<::gloo::Context>& context, std::uint32_t* nextTag,
                                           void* data, std::size_t count);

// The data of the timed iterations: reducing it leaves it as it was, so that no value overflows or becomes denormal
// (slow) however often it is repeated.
void fillFixedPoint(const CollectiveOptions& options, void* data, std::size_t count);
// See check_pattern.h.
void fillCheck(const CollectiveOptions& options, void* data, std::size_t count, int rank, int ranks,
               std::uint64_t iteration);
std::uint64_t countWrong(const CollectiveOptions& options, const void* data, std::size_t count, int ranks,
                         std::uint64_t iteration);

}  // namespace gloo_bypass
