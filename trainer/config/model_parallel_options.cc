#include "trainer/config/model_parallel_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "trainer/config/given.h"
#include "trainer/config/named_choices.h"
#include "trainer/config/options.h"

namespace gloo_bypass::trainer {
namespace {

const NamedChoices<ModelParallelism> kMethods{{"none", ModelParallelism::kNone},
                                              {"tensor", ModelParallelism::kTensor},
                                              {"gpipe", ModelParallelism::kGpipe},
                                              {"1f1b", ModelParallelism::k1F1B}};

}  // namespace

std::string nameOf(ModelParallelism method) { return nameOf(kMethods, method); }

void addModelParallelOptions(CLI::App& app, ModelParallelOptions& o) {
  app.add_option_function<std::string>(
         "--model-parallel", [&o](const std::string& text) { o.method = kMethods.at(text); },
         "the ranks share one model instead of the samples: each has a part of every block (tensor), or some of the "
         "blocks, through which the "
         "micro-batches of --accumulate pass, all forwards first (gpipe) or one forward, one backward (1f1b)")
      ->check(CLI::IsMember(namesOf(kMethods)))
      ->group("Model parallelism")
      ->default_str("none");
}

std::string crossCheck(const ModelParallelOptions& o, const Options& options) {
  if (!o.isUsed()) {
    return {};
  }
  const std::string flag = "--model-parallel " + nameOf(o.method);
  if (!options.ddp) {
    return flag + " shares a model among ranks: not with --no-ddp";
  }
  if (options.precision.hasMasters()) {
    return flag + " shares what fp32 and fp64 hold, no masters yet: not with --precision bf16 or fp16";
  }
  const std::string other = firstGiven({{options.sharding.zero > 0, "--zero"},
                                        {options.averaging.isUsed(), "--average"},
                                        {options.compression.isUsed(), "--compress"}});
  if (!other.empty()) {
    return fmt::format("{} goes without {}: its ranks have one model together, not a gradient each of all of it", flag,
                       other);
  }
  if (options.elastic.isUsed()) {
    return flag + " goes without --elastic: a lost rank takes its part of the model with it";
  }
  const std::string ofBuckets = firstGiven(
      {{options.gradientAsBucketView, "--gradient-as-bucket-view"}, {!options.stepMarkers.empty(), "--step-markers"}});
  if (!ofBuckets.empty()) {
    return fmt::format("{} goes without {}, which is about the reducer's buckets", flag, ofBuckets);
  }
  if (o.method == ModelParallelism::kTensor && options.dropout > 0) {
    return flag + " goes without --dropout: ranks that drew the same numbers would drop the same of different heads";
  }
  if (o.isPipeline() && options.tail != Tail::kDrop) {
    return flag + " needs micro-batches of one size: --tail drop";
  }
  if (o.isPipeline() && options.segmentBytes != 0) {
    return "--segment-bytes is of all-reduces, of which there are none with " + flag;
  }
  return {};
}

}  // namespace gloo_bypass::trainer
