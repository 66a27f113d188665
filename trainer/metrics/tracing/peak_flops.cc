#include "trainer/metrics/tracing/peak_flops.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <ATen/ATen.h>

#include "trainer/model/precision/arithmetic.h"

namespace gloo_bypass::trainer {

double measureMatrixProduct(const Gpt2Config& config, int64_t tokens, at::ScalarType type) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kLongEnough{0.3};
  constexpr int kLeast = 5, kMost = 100'000;
  const int64_t c = config.hidden;
  const auto x = at::full({tokens, c}, 0.5, type), weight = at::full({c, 4 * c}, 0.25, type);
  double best = std::numeric_limits<double>::max();
  const auto start = Clock::now();
  for (int i = 0; i < kMost && (i < kLeast || Clock::now() - start < kLongEnough); ++i) {
    const auto begin = Clock::now();
    const auto product = arithmetic::mm(x, weight);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return 2 * static_cast<double>(tokens * c * 4 * c) / best;
}

std::optional<double> peakFlopsPerSecond(const TracingOptions& options, const Gpt2& model, int64_t tokens,
                                         Communicator& communicator) {
  const int ranks = communicator.worldSize();
  if (!options.measurePeak) {
    return options.peakFlopsPerSecond > 0 ? std::optional(options.peakFlopsPerSecond * ranks) : std::nullopt;
  }
  communicator.barrier();
  const double own = measureMatrixProduct(model.config(), tokens, model.parameters()[0].scalar_type());
  return communicator.meanOverRanks(own) * ranks;
}

}  // namespace gloo_bypass::trainer
