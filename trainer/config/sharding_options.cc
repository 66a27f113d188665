#include "trainer/config/sharding_options.h"

#include <CLI/CLI.hpp>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

void addShardingOptions(CLI::App& app, ShardingOptions& o) {
  app.add_option("--zero", o.zero,
                 "ZeRO's stage: what ranks hold a share of only. 1: the optimiser's state, 2: gradients too, "
                 "3: parameters too (0: nothing, DDP)")
      ->check(CLI::Range(int64_t{0}, int64_t{3}))
      ->group("Sharding and memory");
}

std::string crossCheck(const ShardingOptions& sharding, const Options& options) {
  if (sharding.zero == 0) {
    return {};
  }
  if (!options.ddp) {
    return "--zero shares a model among ranks: not with --no-ddp";
  }
  if (options.precision.hasMasters()) {
    return "--zero shares what fp32 and fp64 hold, no masters yet: not with --precision bf16 or fp16";
  }
  if (options.compression.isUsed()) {
    return "--compress replaces all-reduces, of which there are none with --zero";
  }
  if (options.averaging.isUsed()) {
    return "--average has ranks with models of their own, --zero ranks that share one";
  }
  if (options.gradientAsBucketView) {
    return "--gradient-as-bucket-view is of the reducer's buckets, of which there are none with --zero";
  }
  if (options.segmentBytes != 0) {
    return "--segment-bytes is of all-reduces, of which there are none with --zero";
  }
  return {};
}

}  // namespace gloo_bypass::trainer
