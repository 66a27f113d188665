#include "trainer/distributed/compression/compressor.h"

#include <utility>

#include "trainer/distributed/compression/gathered.h"
#include "trainer/distributed/compression/power_sgd.h"
#include "trainer/distributed/compression/summed.h"

namespace gloo_bypass::trainer {

std::unique_ptr<Codec> makeCodec(const CompressionOptions& options) {
  switch (options.method) {
    case CompressionMethod::kTopK:
      return makeTopKCodec(options.ratio, options.values == CompressedValues::kFp16);
    case CompressionMethod::kSign:
      return makeSignCodec();
    case CompressionMethod::kTernGrad:
      return makeTernGradCodec();
    case CompressionMethod::kQsgd:
      return makeQsgdCodec(options.levels);
    default:
      return nullptr;
  }
}

std::unique_ptr<Compressor> makeCompressor(const CompressionOptions& options,
                                           const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                                           uint64_t seed) {
  ErrorFeedback feedback(options.canFeedBack() && options.errorFeedback, parameters);
  if (options.isGathered()) {
    return std::make_unique<GatheredCodes>(makeCodec(options), std::move(feedback), seed);
  }
  switch (options.method) {
    case CompressionMethod::kFp16:
      return std::make_unique<Cast>(at::kHalf);
    case CompressionMethod::kBf16:
      return std::make_unique<Cast>(at::kBFloat16);
    case CompressionMethod::kRandomK:
      return std::make_unique<RandomK>(options.ratio, std::move(feedback), seed);
    case CompressionMethod::kPowerSgd:
      return std::make_unique<PowerSgd>(options.rank, std::move(feedback), parameters, seed);
    default:
      return nullptr;
  }
}

}  // namespace gloo_bypass::trainer
