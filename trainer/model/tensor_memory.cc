#include "trainer/model/tensor_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "plugin/compatibility/torch/cpu_allocator.h"
#include "tools/common/error.h"
#include "trainer/config/compatibility.h"
#include "trainer/model/model_share.h"

namespace gloo_bypass::trainer {
namespace {

std::atomic<int64_t> liveBytes{0}, peakBytes{0};
bool isCounting = false;

void count(int64_t bytes) {
  const int64_t live = liveBytes += bytes;
  for (int64_t peak = peakBytes; live > peak && !peakBytes.compare_exchange_weak(peak, live);) {
  }
}

// "MemAvailable:   23619000 kB"; nothing where the kernel does not say.
std::optional<int64_t> availableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    int64_t kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) {
      return kibibytes * 1024;
    }
  }
  return std::nullopt;
}

// Of the rank that holds the most.
int64_t heldParameters(const Options& options, int ranks) {
  const auto config = modelConfig(options);
  int64_t most = 0;
  for (const int rank : {0, ranks - 1}) {
    const auto place = options.modelParallel.placeOf(rank, ranks);
    most = std::max(most, ModelShare(options.modelParallel.method, place, config).elements(config));
  }
  return most;
}

}  // namespace

int64_t modelStateBytes(const Options& options, int ranks) {
  const int64_t parameters = heldParameters(options, ranks), zero = options.sharding.zero;
  const bool hasMasters = options.precision.hasMasters();
  const int64_t elementBytes = options.precision.parameterBytes();
  const int64_t optimizerBytes = hasMasters ? 12 : 2 * elementBytes;  // the paper's K: masters and both moments
  const auto held = [&](int64_t fromStage) {
    return zero >= fromStage ? (parameters + ranks - 1) / ranks : parameters;
  };
  return elementBytes * (held(3) + held(2)) + optimizerBytes * held(1);
}

int64_t reductionBytes(const Options& options, int ranks) {
  const bool isAlone = !options.ddp || ranks == 1;
  if (options.sharding.isUsed() || options.modelParallel.isUsed()) {
    return 0;
  }
  const bool hasBuckets = !isAlone && !options.averaging.isUsed() && !options.gradientAsBucketView;
  const int64_t ofEach =
      (hasBuckets ? options.precision.parameterBytes() : 0) + (options.precision.hasMasters() ? 4 : 0);
  return ofEach * heldParameters(options, ranks);
}

int64_t unshardedBytes(const Options& options) {
  const int64_t ofEach = options.precision.parameterBytes() + (options.precision.hasMasters() ? 4 : 0);
  return options.sharding.isUsed() ? ofEach * modelConfig(options).parameterCount() : 0;
}

int64_t techniqueStateBytes(const Options& options, int ranks) {
  int64_t ofEach = options.precision.sumsInFp32 ? 4 : 0;
  if (options.compression.isUsed() && options.compression.canFeedBack() && options.compression.errorFeedback) {
    ofEach += options.precision.isScaled() ? 8 : 4;
  }
  if (options.averaging.method == AveragingMethod::kDiLoCo) {
    ofEach += 2 * options.precision.parameterBytes();
  }
  return ofEach * heldParameters(options, ranks);
}

// Rank 0's with --average asynchronous: the parameters and moments once more, and a request and an answer of each other
// rank.
int64_t serverBytes(const Options& options, int ranks) {
  const int64_t copies = options.averaging.isAsynchronous() ? 3 + 2 * (ranks - 1) : 0;
  return copies * modelConfig(options).parameterCount() * (options.precision.type == Precision::kFloat64 ? 8 : 4);
}

void checkMemory(const Options& options, int ranks, int ranksHere) {
  constexpr double kGigabyte = 1e9;
  const auto available = availableBytes();
  const int64_t ofTraining =
      modelStateBytes(options, ranks) + techniqueStateBytes(options, ranks) + reductionBytes(options, ranks);
  const int64_t needed = ranksHere * std::max(ofTraining, unshardedBytes(options)) +
                         (ranksHere == ranks ? serverBytes(options, ranks) : 0);
  if (available && needed > *available) {
    Options sharded = options;
    sharded.sharding.zero += 1;
    const auto isGiven = [&](const char* flag) {
      return std::string_view(flag) == "--first-bucket-mb" && options.firstBucketMb != Options().firstBucketMb;
    };
    const bool couldShard = ranks > 1 && options.sharding.zero < 3 && conflictIn(sharded, isGiven).empty();
    throw UsageError(fmt::format(
        "{} {} of {} need {:.1f} GB for parameters, gradients and moments, with what techniques keep and without "
        "activations, of {:.1f} GB available: {}a smaller --model{}",
        ranksHere, ranksHere == 1 ? "rank" : "ranks", ranks, static_cast<double>(needed) / kGigabyte,
        static_cast<double>(*available) / kGigabyte, ranksHere > 1 ? "fewer ranks, " : "",
        couldShard ? fmt::format(", or --zero {}", sharded.sharding.zero) : ""));
  }
}

void prepareMemory(const Options& options, int ranks) {
  checkMemory(options, ranks, 1);
  if (options.memoryMetrics) {
    countTensorBytes();
  }
}

double peakMemoryMb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

void countTensorBytes() {
  isCounting = true;
  torch_version::observeCpuMemory(count);
}

std::optional<int64_t> peakTensorBytes() { return isCounting ? std::optional(peakBytes.load()) : std::nullopt; }

void resetPeakTensorBytes() { peakBytes = liveBytes.load(); }

}  // namespace gloo_bypass::trainer
