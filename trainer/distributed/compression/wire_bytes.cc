#include "trainer/distributed/compression/wire_bytes.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/config/choices.h"
#include "trainer/distributed/compression/compressor.h"
#include "trainer/distributed/compression/kept_count.h"
#include "trainer/distributed/compression/power_sgd.h"

namespace gloo_bypass::trainer {
namespace {

int64_t elementsOf(const ParameterShape& parameter) {
  int64_t elements = 1;
  for (const int64_t size : parameter.sizes) elements *= size;
  return elements;
}

// The bytes of one parameter in what a rank hands to the collective.
int64_t sentBytes(const CompressionOptions& options, const ParameterShape& parameter, int64_t gradientBytes) {
  const int64_t elements = elementsOf(parameter), workBytes = std::max<int64_t>(gradientBytes, 4);  // see workType()
  switch (options.method) {
    case CompressionMethod::kFp16:
    case CompressionMethod::kBf16:
      return 2 * elements;
    case CompressionMethod::kRandomK:
      return keptCount(elements, options.ratio) * workBytes;
    case CompressionMethod::kPowerSgd:
      return powerSgdBytes(parameter.sizes, options.rank, gradientBytes, workBytes);
    default:
      return makeCodec(options)->codeBytes(elements, workBytes);
  }
}

// What makes it less.
const char* remedyOf(CompressionMethod method) {
  switch (method) {
    case CompressionMethod::kTopK:
    case CompressionMethod::kRandomK:
      return "lower --compress-ratio";
    case CompressionMethod::kQsgd:
      return "lower --compress-levels";
    case CompressionMethod::kPowerSgd:
      return "lower --compress-rank";
    default:
      return "choose another method";
  }
}

}  // namespace

double wireShare(const CompressionOptions& options, std::span<const ParameterShape> parameters, int64_t gradientBytes,
                 int ranks) {
  int64_t plain = 0, sent = 0;
  for (const ParameterShape& parameter : parameters) {
    plain += elementsOf(parameter) * gradientBytes;
    sent += sentBytes(options, parameter, gradientBytes);
  }
  // All-gather: (N-1) sent; all-reduce: 2 (N-1)/N of what is reduced.
  const double gathered = options.isGathered() ? static_cast<double>(ranks) / 2 : 1;
  return gathered * static_cast<double>(sent) / static_cast<double>(plain);
}

void requireGain(const Options& options, int ranks) {
  if (!options.compression.isUsed() || ranks < 2) return;
  const auto parameters = modelConfig(options).parameters();
  const double share = wireShare(options.compression, parameters, options.precision.parameterBytes(), ranks);
  if (share < 1) return;
  throw UsageError(fmt::format("--compress {}: {} ranks would send {:.2f} times the bytes of the plain all-reduce: {}",
                               nameOf(kCompressions, options.compression.method), ranks, share,
                               remedyOf(options.compression.method)));
}

}  // namespace gloo_bypass::trainer
