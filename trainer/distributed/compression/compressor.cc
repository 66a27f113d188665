#include "trainer/distributed/compression/compressor.h"

#include "trainer/distributed/compression/gathered.h"
#include "trainer/distributed/compression/power_sgd.h"
#include "trainer/distributed/compression/summed.h"

namespace gloo_bypass::trainer {

std::unique_ptr<Compressor> makeCompressor(const CompressionOptions& options,
                                           const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                                           uint64_t seed) {
  const ErrorFeedback none(false, parameters);
  const auto feedback = [&] { return ErrorFeedback(options.errorFeedback, parameters); };
  switch (options.method) {
    case CompressionMethod::kNone:
      return nullptr;
    case CompressionMethod::kFp16:
      return std::make_unique<Cast>(at::kHalf);
    case CompressionMethod::kBf16:
      return std::make_unique<Cast>(at::kBFloat16);
    case CompressionMethod::kTopK:
      return std::make_unique<GatheredCodes>(makeTopKCodec(options.ratio), feedback(), seed);
    case CompressionMethod::kRandomK:
      return std::make_unique<RandomK>(options.ratio, feedback(), seed);
    case CompressionMethod::kSign:
      return std::make_unique<GatheredCodes>(makeSignCodec(), feedback(), seed);
    case CompressionMethod::kTernGrad:
      return std::make_unique<GatheredCodes>(makeTernGradCodec(), none, seed);
    case CompressionMethod::kQsgd:
      return std::make_unique<GatheredCodes>(makeQsgdCodec(options.levels), none, seed);
    case CompressionMethod::kPowerSgd:
      return std::make_unique<PowerSgd>(options.rank, feedback(), parameters, seed);
  }
  return nullptr;
}

}  // namespace gloo_bypass::trainer
