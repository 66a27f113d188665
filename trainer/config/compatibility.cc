#include "trainer/config/compatibility.h"

#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainer/config/choices.h"
#include "trainer/config/marker_address.h"

namespace gloo_bypass::trainer {
namespace {

bool isScale(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= kSmallestLossScale &&
         value <= kLargestLossScale;
}

// A message may name the options' values: {precision}, {compress}, ...
std::string filledIn(std::string_view message, const Options& o) {
  return fmt::format(
      fmt::runtime(message), fmt::arg("precision", nameOf(kPrecisions, o.precision.type)),
      fmt::arg("compress", nameOf(kCompressions, o.compression.method)), fmt::arg("sums", nameOf(kSums, o.sums)),
      fmt::arg("model_parallel", "--model-parallel " + nameOf(kModelParallelisms, o.modelParallel.method)),
      fmt::arg("loss_scale", o.precision.lossScale), fmt::arg("markers", o.stepMarkers), fmt::arg("samples", o.samples),
      fmt::arg("spawn", o.spawn), fmt::arg("elastic", o.elastic.range),
      fmt::arg("unused", o.staticGraph ? "--static-graph" : "--find-unused-parameters"),
      fmt::arg("unreduced", !o.ddp                 ? "--no-ddp"
                            : o.averaging.isUsed() ? "--average"
                            : o.sharding.isUsed()  ? "--zero"
                                                   : "--model-parallel"));
}

}  // namespace

std::string conflictIn(const Options& o, const std::function<bool(const char* flag)>& isGiven) {
  const bool isAlone = !o.ddp, halves = o.precision.hasMasters(), compresses = o.compression.isUsed(),
             averages = o.averaging.isUsed(), shards = o.sharding.isUsed(), sharesModel = o.modelParallel.isUsed(),
             isElastic = o.elastic.isUsed(), marks = !o.stepMarkers.empty(), hasTarget = o.targetLoss.isUsed(),
             holdsOut = o.evaluation.samples != 0, decays = o.schedule.shape != ScheduleShape::kConstant,
             hasOwn = o.collectives == Collectives::kOwn, scalesRate = o.schedule.scaling != RateScaling::kNone,
             addsAll = o.sums != Sums::kReduced, finds = o.findUnusedParameters, isStatic = o.staticGraph,
             dropsLayers = o.layerDrop > 0;
  const bool reduces = !isAlone && !averages && !shards && !sharesModel;
  const bool hasCopies = sharesModel && o.modelParallel.ranks > 0;  // whose gradients are reduced
  const auto averagesBy = [&](auto... methods) { return ((o.averaging.method == methods) || ...); };
  const auto compressesBy = [&](auto method) { return o.compression.method == method; };
  const bool casts = compressesBy(CompressionMethod::kFp16) || compressesBy(CompressionMethod::kBf16);
  const std::pair<bool, std::string_view> rules[] = {
      // Files.
      {o.checkpointEvery > 0 && o.checkpointPath.empty(), "--checkpoint-every needs --checkpoint FILE"},
      {!o.resumePath.empty() && !o.weightsPath.empty(),
       "--resume and --weights exclude each other: a checkpoint holds the weights"},
      // Values that no bounds express.
      {o.segmentBytes != 0 && o.segmentBytes < 64, "--segment-bytes: 0, or at least 64"},
      {marks && !parseMarkerAddress(o.stepMarkers),
       "--step-markers {markers}: neither an IPv4 address nor ADDRESS:PORT"},
      // Collectives.
      {hasOwn && isAlone, "--collectives chooses who runs what ranks exchange: nothing is exchanged with --no-ddp"},
      {isAlone && o.segmentBytes != 0, "--segment-bytes has no effect with --no-ddp"},
      {(isAlone || averages) && o.gradientAsBucketView, "--gradient-as-bucket-view has no effect with {unreduced}"},
      {isGiven("--bucket-cap-mb") && !reduces && !shards && !hasCopies,
       "--bucket-cap-mb has no effect with {unreduced}"},
      {isGiven("--first-bucket-mb") && !reduces && !hasCopies, "--first-bucket-mb has no effect with {unreduced}"},
      {averagesBy(AveragingMethod::kGossip, AveragingMethod::kCentral, AveragingMethod::kAsynchronous) &&
           o.segmentBytes != 0,
       "--segment-bytes is about all-reduces: --average makes some with local-sgd and diloco only"},
      {o.compression.isUsed() && o.compression.isGathered() && o.compression.plainSteps() == 0 && o.segmentBytes != 0,
       "--segment-bytes is about all-reduces: --compress {compress} makes none"},
      {hasOwn && o.segmentBytes != 0, "--segment-bytes is about Gloo's ring: not with --collectives own"},
      {addsAll && isAlone, "--sums {sums} is how ranks' gradients are added: none are with --no-ddp"},
      {addsAll && compresses, "--compress has a way of adding of its own: not with --sums {sums}"},
      {addsAll && averages, "--average has a way of adding of its own: not with --sums {sums}"},
      {addsAll && shards,
       "--zero leaves each rank a share of the sums: not with --sums {sums}, which makes all of them on every rank"},
      {addsAll && sharesModel,
       "{model_parallel} goes without --sums {sums}: its ranks add parts of activations, not gradients"},
      {addsAll && o.segmentBytes != 0, "--segment-bytes is about all-reduces: --sums {sums} makes none"},
      // Parameters without gradients.
      {(finds || isStatic) && !reduces, "{unused} goes without {unreduced}"},
      {finds && isStatic,
       "--static-graph finds unused parameters once, --find-unused-parameters in each step: give one of them"},
      // https://github.com/pytorch/pytorch/issues/69031, and what https://github.com/pytorch/pytorch/pull/124193 did to
      // static graphs: numGradHooksTriggeredMap_ also counts the second step's first micro-batches.
      {(finds || isStatic) && o.accumulate > 1,
       "{unused} goes without --accumulate, whose other micro-batches PyTorch's reducer does not count right"},
      // The reducer's own all-reduce would go beside the exchange's, in another order at each rank.
      {finds && compresses, "--find-unused-parameters goes without --compress, which exchanges on threads of its own"},
      {finds && addsAll, "--find-unused-parameters goes without --sums {sums}, which exchange on threads of their own"},
      {dropsLayers && !isAlone && !reduces, "--layer-drop goes without {unreduced}"},
      {dropsLayers && !isAlone && !finds,
       "--layer-drop leaves parameters without a gradient, in each step others: give --find-unused-parameters"},
      {dropsLayers && halves, "--layer-drop goes with --precision fp32 and fp64, not with {precision}"},
      {dropsLayers && compresses,
       "--layer-drop goes without --compress: what is kept of a block's gradient would be lost where no rank uses it"},
      // Step markers.
      {marks && isAlone, "--step-markers marks all-reduces: --no-ddp makes none"},
      {marks && averages, "--step-markers marks the reducer's all-reduces: --average makes none"},
      // Precision.
      {casts && halves, "--compress {compress} sends 16 bits an element, as --precision {precision} does without it"},
      {o.precision.sumsInFp32 && !halves,
       "--accumulate-fp32 is for --precision bf16 and fp16, not for {precision}, which adds up in its own"},
      {o.precision.sumsInFp32 && o.accumulate == 1,
       "--accumulate-fp32 needs --accumulate N: one micro-batch has nothing to add up"},
      {averages && compresses, "--average goes without --compress, whose gradients it does not send"},
      {averages && halves, "--average goes with --precision fp32 and fp64, not with {precision}"},
      {o.precision.isScaled() && !o.precision.hasDynamicScale() && !isScale(o.precision.lossScale),
       "--loss-scale {loss_scale}: neither dynamic nor off nor a number from 2^-126 to 2^100"},
      {o.precision.isScaled() && !halves,
       "--loss-scale {loss_scale} is for --precision bf16 and fp16, not for {precision}"},
      {!o.precision.hasDynamicScale() && isGiven("--initial-loss-scale"),
       "--initial-loss-scale needs a dynamic loss scale: --precision fp16, or --loss-scale dynamic"},
      {!o.precision.hasDynamicScale() && isGiven("--loss-scale-interval"),
       "--loss-scale-interval needs a dynamic loss scale: --precision fp16, or --loss-scale dynamic"},
      // Data.
      {o.tail == Tail::kWeighted && averages,
       "--tail weighted goes without --average, whose ranks do not weigh their gradients: pad or drop"},
      {o.pack && o.passages == Passages::kNone, "--pack packs passages: --passages lines or paragraphs"},
      {o.streamShards && o.samples != 0,
       "--stream-shards reads whole shards, not the first {samples} samples: give --samples 0"},
      {o.streamShards && holdsOut,
       "--stream-shards reads whole shards, as many samples at each rank: it goes without --eval-samples (--eval-data "
       "evaluates)"},
      {o.streamShards && o.tail != Tail::kDrop,
       "--stream-shards reads whole shards, as many samples at each rank: it goes without --tail"},
      {o.streamShards && isElastic,
       "--stream-shards reads whole shards, as many samples at each rank: it goes without --elastic"},
      {o.isPadded() && averages,
       "--passages goes without --average, whose ranks do not weigh their gradients by their tokens, unless with "
       "--pack"},
      {o.tail == Tail::kPad && isElastic,
       "--tail pad goes without --elastic, which repeats no sample: weighted or drop"},
      // Ranks that fail.
      {isElastic && averages, "--elastic goes without --average: a lost rank takes its own state with it"},
      {isElastic && compresses, "--elastic goes without --compress: a lost rank takes its own state with it"},
      {!isElastic && isGiven("--max-restarts"), "--max-restarts needs --elastic MIN:MAX"},
      {!isElastic && isGiven("--rejoin-after"), "--rejoin-after needs --elastic MIN:MAX"},
      // ZeRO.
      {shards && isAlone, "--zero shares a model among ranks: not with --no-ddp"},
      {shards && o.precision.sumsInFp32,
       "--accumulate-fp32 sums whole gradients, and --zero leaves each rank a share: give one of them"},
      {shards && compresses, "--compress replaces all-reduces: --zero makes none"},
      {shards && averages, "--average has ranks with models of their own, --zero ranks that share one"},
      {shards && o.gradientAsBucketView, "--gradient-as-bucket-view has no effect with --zero"},
      {shards && o.segmentBytes != 0, "--segment-bytes has no effect with --zero"},
      {o.activationCheckpointing && o.selectiveCheckpointing,
       "--activation-checkpointing computes all again, --selective-checkpointing a part of it: give one of them"},
      // Tracing.
      {o.tracing.measurePeak && o.tracing.peakFlopsPerSecond > 0,
       "--measure-peak and --peak-flops exclude each other: mfu is in per cent of one peak"},
      // Compression.
      {compresses && isAlone, "--compress changes what ranks send: nothing is sent with --no-ddp"},
      {!compresses && isGiven("--compress-ratio"), "--compress-ratio needs --compress METHOD"},
      {!compresses && isGiven("--compress-values"), "--compress-values needs --compress METHOD"},
      {!compresses && isGiven("--compress-levels"), "--compress-levels needs --compress METHOD"},
      {!compresses && isGiven("--compress-rank"), "--compress-rank needs --compress METHOD"},
      {!compresses && isGiven("--compress-warmup"), "--compress-warmup needs --compress METHOD"},
      {!compresses && !o.compression.errorFeedback, "--no-error-feedback needs --compress METHOD"},
      {!o.compression.isSparse() && isGiven("--compress-ratio"),
       "--compress-ratio is for --compress topk and randomk, not for {compress}"},
      {!compressesBy(CompressionMethod::kTopK) && isGiven("--compress-values"),
       "--compress-values is for --compress topk, not for {compress}"},
      {!compressesBy(CompressionMethod::kQsgd) && isGiven("--compress-levels"),
       "--compress-levels is for --compress qsgd, not for {compress}"},
      {!compressesBy(CompressionMethod::kPowerSgd) && isGiven("--compress-rank"),
       "--compress-rank is for --compress powersgd, not for {compress}"},
      {!o.compression.errorFeedback && !o.compression.canFeedBack(),
       "--no-error-feedback: --compress {compress} has none (topk, randomk, sign and powersgd have)"},
      // Averaging.
      {averages && isAlone, "--average is between ranks: there is one only with --no-ddp"},
      {!o.averaging.hasInnerSteps() && isGiven("--inner-steps"), "--inner-steps: is for --average local-sgd or diloco"},
      {!averagesBy(AveragingMethod::kDiLoCo) && isGiven("--outer-lr"), "--outer-lr: is for --average diloco"},
      {!averagesBy(AveragingMethod::kDiLoCo) && isGiven("--outer-momentum"),
       "--outer-momentum: is for --average diloco"},
      {!o.averaging.isAsynchronous() && isGiven("--staleness-bound"),
       "--staleness-bound: is for --average asynchronous"},
      {!o.averaging.isAsynchronous() && isGiven("--staleness-penalty"),
       "--staleness-penalty: is for --average asynchronous"},
      {!averagesBy(AveragingMethod::kGossip) && isGiven("--gossip-topology"),
       "--gossip-topology: is for --average gossip"},
      // Model parallelism.
      {!sharesModel && o.modelParallel.ranks > 0, "--model-ranks needs --model-parallel METHOD"},
      {sharesModel && isAlone, "{model_parallel} shares a model among ranks: not with --no-ddp"},
      {sharesModel && halves,
       "{model_parallel} shares what fp32 and fp64 hold, no masters yet: not with --precision bf16 or fp16"},
      {sharesModel && shards,
       "{model_parallel} goes without --zero: its ranks have one model together, not a gradient each of all of it"},
      {sharesModel && averages,
       "{model_parallel} goes without --average: its ranks have one model together, not a gradient each of all of it"},
      {sharesModel && compresses,
       "{model_parallel} goes without --compress: its ranks have one model together, not a gradient each of all of it"},
      {sharesModel && isElastic,
       "{model_parallel} goes without --elastic: a lost rank takes its part of the model with it"},
      {sharesModel && o.gradientAsBucketView, "{model_parallel} goes without --gradient-as-bucket-view"},
      {sharesModel && marks, "{model_parallel} goes without --step-markers"},
      {o.modelParallel.method == ModelParallelism::kTensor && o.dropout > 0,
       "{model_parallel} goes without --dropout: ranks that drew the same numbers would drop the same of different "
       "heads"},
      {o.modelParallel.isPipeline() && o.tail != Tail::kDrop,
       "{model_parallel} needs micro-batches of one size: --tail drop"},
      {o.modelParallel.isPipeline() && o.modelParallel.ranks == 0 && o.segmentBytes != 0,
       "--segment-bytes has no effect with {model_parallel} unless several copies of the model reduce gradients "
       "(--model-ranks)"},
      // Schedule and target.
      {scalesRate && o.schedule.baseBatch == 0,
       "--lr-scaling needs --lr-base-batch B, the samples a step that --lr is meant for"},
      {!scalesRate && o.schedule.baseBatch != 0, "--lr-base-batch means nothing without --lr-scaling linear or sqrt"},
      {!decays && o.schedule.minimumRatio > 0, "--min-lr-ratio is for --schedule linear and cosine"},
      {!decays && o.schedule.steps > 0, "--schedule-steps is for --schedule linear and cosine"},
      {hasTarget && o.averaging.isAsynchronous(),
       "--target-loss needs the mean over ranks, which --average asynchronous leaves unknown: no rank waits for the "
       "others"},
      {hasTarget && !o.barrier, "--target-loss needs the mean over ranks, which --no-barrier leaves unknown"},
      {!hasTarget && o.targetLoss.window != 1, "--target-window means nothing without --target-loss X"},
      // Evaluation.
      {o.evaluation.every > 0 && !o.evaluation.isUsed(),
       "--eval-every needs text to evaluate on: --eval-samples N or --eval-data FILE"},
      // Elastic.
      {isElastic && isAlone, "--elastic is for ranks that train together, not for --no-ddp"},
      {isElastic && o.checkpointPath.empty(),
       "--elastic needs --checkpoint FILE (and --checkpoint-every N): what a restart continues from"},
      {isElastic && o.spawn != 0 && (o.spawn < o.elastic.minRanks || o.spawn > o.elastic.maxRanks),
       "--spawn {spawn}: outside of --elastic {elastic}"},
  };
  for (const auto& [isBroken, message] : rules) {
    if (isBroken) {
      return filledIn(message, o);
    }
  }
  return {};
}

}  // namespace gloo_bypass::trainer
