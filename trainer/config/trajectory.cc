#include "trainer/config/trajectory.h"

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/config/choices.h"

namespace gloo_bypass::trainer {
namespace {

nlohmann::json trajectoryOf(const Gpt2Config& sizes) {
  return {{"layers", sizes.layers},
          {"hidden", sizes.hidden},
          {"heads", sizes.heads},
          {"vocabulary", sizes.vocabulary},
          {"positions", sizes.positions}};
}

nlohmann::json trajectoryOf(const CompressionOptions& o) {
  nlohmann::json compression{{"method", nameOf(kCompressions, o.method)}, {"plain_steps", o.plainSteps()}};
  if (o.isSparse()) compression["ratio"] = o.ratio;
  if (o.values != CompressedValues::kFull) compression["values"] = nameOf(kCompressedValues, o.values);
  if (o.method == CompressionMethod::kQsgd) compression["levels"] = o.levels;
  if (o.method == CompressionMethod::kPowerSgd) compression["rank"] = o.rank;
  if (o.canFeedBack()) compression["error_feedback"] = o.errorFeedback;
  return compression;
}

nlohmann::json trajectoryOf(const AveragingOptions& o) {
  nlohmann::json averaging{{"method", nameOf(kAveragings, o.method)}};
  if (o.hasInnerSteps()) averaging["inner_steps"] = o.innerSteps;
  if (o.method == AveragingMethod::kDiLoCo) {
    averaging["outer_lr"] = o.outerRate;
    averaging["outer_momentum"] = o.outerMomentum;
  }
  if (o.isAsynchronous()) {
    averaging["staleness_bound"] = o.stalenessBound;
    averaging["staleness_penalty"] = nameOf(kStalenessPenalties, o.stalenessPenalty);
  }
  if (o.method == AveragingMethod::kGossip) averaging["topology"] = nameOf(kGossipTopologies, o.topology);
  return averaging;
}

nlohmann::json trajectoryOf(const ScheduleOptions& o, int64_t runSteps) {
  nlohmann::json schedule{{"schedule", nameOf(kScheduleShapes, o.shape)},
                          {"warmup_steps", o.warmupSteps},
                          {"lr_scaling", nameOf(kRateScalings, o.scaling)},
                          {"lr_base_batch", o.baseBatch}};
  if (o.shape != ScheduleShape::kConstant) {
    schedule["min_lr_ratio"] = o.minimumRatio;
    schedule["schedule_steps"] = o.endOfDecay(runSteps);
  }
  return schedule;
}

}  // namespace

nlohmann::json trajectoryOf(const Options& o, const RunSize& size) {
  nlohmann::json trajectory{{"model", o.model},
                            {"batch_size", o.batchSize},
                            {"seq_length", o.seqLength},
                            {"samples", o.samples},
                            {"accumulate", o.accumulate},
                            {"seed", o.seed},
                            {"dropout", o.dropout},
                            {"lr", o.learningRate},
                            {"weight_decay", o.weightDecay},
                            {"beta1", o.beta1},
                            {"beta2", o.beta2},
                            {"epsilon", o.epsilon},
                            {"clip_norm", o.clipNorm},
                            {"bucket_cap_mb", o.bucketCapMb},
                            {"first_bucket_mb", o.firstBucketMb},
                            {"segment_bytes", o.segmentBytes},
                            {"precision", nameOf(kPrecisions, o.precision.type)},
                            {"ddp", o.ddp},
                            {"world_size", o.elastic.isUsed() ? o.elastic.maxRanks : size.ranks},
                            {"corpus_samples", size.samples},
                            {"text", size.text}};
  // What is not used leaves no trace: checkpoints from before an option was there continue.
  if (o.modelSizes) trajectory["model"] = trajectoryOf(*o.modelSizes);
  if (o.collectives != Collectives::kGloo) trajectory["collectives"] = nameOf(kCollectives, o.collectives);
  if (o.sums != Sums::kReduced) trajectory["sums"] = nameOf(kSums, o.sums);
  if (o.tail != Tail::kDrop) trajectory["tail"] = nameOf(kTails, o.tail);
  if (o.passages != Passages::kNone) {
    trajectory["passages"] = nameOf(kPassages, o.passages) + (o.pack ? ", packed" : "");
  }
  if (o.streamShards) trajectory["stream_shards"] = true;
  if (o.layerDrop > 0) trajectory["layer_drop"] = o.layerDrop;
  if (o.findUnusedParameters) trajectory["find_unused_parameters"] = true;
  if (o.precision.sumsInFp32) trajectory["accumulate_fp32"] = true;
  if (o.precision.isScaled()) {
    trajectory["loss_scale"] = o.precision.lossScale.empty() ? "dynamic" : o.precision.lossScale;
    trajectory["initial_loss_scale"] = o.precision.initialLossScale;
    trajectory["loss_scale_interval"] = o.precision.lossScaleInterval;
  }
  if (o.compression.isUsed()) trajectory["compression"] = trajectoryOf(o.compression);
  if (o.averaging.isUsed()) trajectory["averaging"] = trajectoryOf(o.averaging);
  if (o.schedule.isUsed()) trajectory.update(trajectoryOf(o.schedule, size.steps));
  return trajectory;
}

nlohmann::json agreement(const Options& o, nlohmann::json trajectory, int64_t runSteps, int64_t evaluatedSamples) {
  nlohmann::json agreed = std::move(trajectory);
  agreed["steps"] = runSteps;
  agreed["barrier"] = o.barrier;
  agreed["target_loss"] = {o.targetLoss.loss, o.targetLoss.window};
  agreed["verify_ranks"] = o.verifyRanks;
  agreed["resume"] = !o.resumePath.empty();
  agreed["zero"] = o.sharding.zero;
  agreed["static_graph"] = o.staticGraph;
  agreed["model_parallel"] = nameOf(kModelParallelisms, o.modelParallel.method);
  agreed["model_ranks"] = o.modelParallel.ranks;
  agreed["elastic"] = o.elastic.range;
  agreed["evaluation"] = {evaluatedSamples, o.evaluation.every};
  agreed["tracing"] = {{"trace", !o.tracing.tracePath.empty()},
                       {"measure_peak", o.tracing.measurePeak},
                       {"peak_flops", o.tracing.peakFlopsPerSecond}};
  if (o.modelParallel.isUsed()) {
    agreed["activation_checkpointing"] = o.activationCheckpointing;  // it repeats collectives
  }
  // Only these modes write checkpoints collectively, so all ranks must agree on paths. The names make an error name
  // the cause of the difference first.
  for (const auto& [method, isUsed] : {std::pair("zero", o.sharding.isUsed()),
                                       {"model_parallel", o.modelParallel.isUsed()},
                                       {"averaging", o.averaging.isUsed()},
                                       {"compression", o.compression.isUsed()}}) {
    if (isUsed) {
      agreed[fmt::format("{}_checkpoint", method)] = {!o.checkpointPath.empty(), o.checkpointEvery};
      agreed[fmt::format("{}_save_model", method)] = !o.saveModelPath.empty();
    }
  }
  return agreed;
}

// What another rank or a file has written may be long.
std::string firstDifference(const nlohmann::json& here, const nlohmann::json& there, const std::string& thereName) {
  constexpr size_t kMostShown = 1000;
  const auto shown = [](std::string_view text) {
    return fmt::format("{}{}", text.substr(0, kMostShown), text.size() > kMostShown ? "..." : "");
  };
  for (const auto& [key, value] : here.items()) {
    const std::string other = there.contains(key) ? there[key].dump() : "nothing";
    if (value.dump() != other) {
      const bool ofTheText = key == "text" || key == "corpus_samples";  // a fingerprint; how many are trained on
      return fmt::format(
          "{}: {} here, {} {}{}", key, value.dump(), shown(other), thereName,
          ofTheText ? " (of the text: give the same --data, --vocab, --merges, --samples and --eval-samples)" : "");
    }
  }
  for (const auto& [key, value] : there.items()) {
    if (!here.contains(key)) {
      return fmt::format("{}: nothing here, {} {}", shown(key), shown(value.dump()), thereName);
    }
  }
  return {};
}

}  // namespace gloo_bypass::trainer
