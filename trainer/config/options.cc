#include "trainer/config/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/common/command_line.h"
#include "tools/common/version.h"
#include "trainer/config/given.h"
#include "trainer/config/named_choices.h"
#include "trainer/metrics/step_markers.h"

namespace gloo_bypass::trainer {
namespace {

constexpr double kMaxSeconds = 86'400;
const NamedChoices<Tail> kTails{{"drop", Tail::kDrop}, {"pad", Tail::kPad}, {"weighted", Tail::kWeighted}};

void addRunOptions(CLI::App& app, Options& o) {
  app.add_option("--spawn", o.spawn,
                 "start N ranks on this machine and wait for them (otherwise RANK, WORLD_SIZE, "
                 "MASTER_ADDR and MASTER_PORT say who this rank is; none of them: a single rank)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N")
      ->group("Run");
  auto* model =
      app.add_option("--model", o.model,
                     "distilgpt2 (81,912,576 parameters), gpt2 (124 million), gpt2-medium (355), gpt2-large (774), "
                     "gpt2-xl (1,558), or tiny, for quick tests")
          ->check(CLI::IsMember(Gpt2Config::names()))
          ->group("Run");
  app.add_option_function<std::string>(
         "--model-config",
         [&o](const std::string& path) {
           o.model = path;
           o.modelSizes = Gpt2Config::fromFile(path);
         },
         "sizes of a GPT-2: Hugging Face's config.json, instead of --model")
      ->type_name("FILE")
      ->group("Run")
      ->excludes(model);
  app.add_option("--batch-size", o.batchSize, "samples a rank and step (and micro-batch)")
      ->check(CLI::Range(1, 65536))
      ->group("Run");
  app.add_option("--seq-length", o.seqLength, "tokens a sample")->check(CLI::Range(1, 1024))->group("Run");
  app.add_option("--epochs", o.epochs, "passes over the samples")->check(CLI::Range(1, 1'000'000))->group("Run");
  app.add_option("--steps", o.steps, "optimiser steps instead of epochs (0: by epochs)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group("Run");
  app.add_option("--accumulate", o.accumulate,
                 "micro-batches a step; only the last one synchronises (no_sync), but with --zero 2 and 3")
      ->check(CLI::Range(1, 65536))
      ->group("Run");
  app.add_option("--seed", o.seed, "of the initial weights, the shuffle and dropout")->group("Run");
  app.add_option("--dropout", o.dropout, "probability; the published DistilGPT2 was trained with 0.1")
      ->check(CLI::Range(0.0, 0.99))
      ->group("Run");
}

void addDataOptions(CLI::App& app, Options& o) {
  app.add_option("--data", o.dataPath,
                 "text file to train on, or a folder that tokenise wrote (default: the sample text that comes "
                 "along)")
      ->type_name("FILE")
      ->group("Data");
  app.add_option("--samples", o.samples, "use the first N samples of the text (0: all)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group("Data");
  auto* passages = app.add_option_function<std::string>(
                          "--passages", [&o](const std::string& text) { o.passages = kPassages.at(text); },
                          "samples are passages, padded to --seq-length, with no loss on the padding: each line (as of "
                          "WikiText), or paragraphs between blank "
                          "lines; none: the text is cut")
                       ->check(CLI::IsMember(namesOf(kPassages)))
                       ->default_str("none")
                       ->group("Data");
  app.add_flag("--pack", o.pack,
               "passages one after the other in one row, an end-of-text token after each, that is cut into samples: no "
               "padding")
      ->needs(passages)
      ->group("Data");
  app.add_flag("--stream-shards", o.streamShards,
               "each rank reads some of the folder's shards, from front to back; which, and in what "
               "order, is drawn anew each epoch")
      ->group("Data");
  app.add_option_function<std::string>(
         "--tail", [&o](const std::string& text) { o.tail = kTails.at(text); },
         "an epoch's last samples that do not fill a step: drop, pad (the epoch's first ones fill them up to a "
         "multiple "
         "of the ranks), or weighted (batches that differ by one sample, each weighing what it holds)")
      ->check(CLI::IsMember(namesOf(kTails)))
      ->default_str("drop")
      ->group("Data");
  auto* vocab = app.add_option("--vocab", o.vocabPath, "GPT-2's vocab.json (without: one token a byte)")
                    ->type_name("FILE")
                    ->group("Data");
  auto* merges = app.add_option("--merges", o.mergesPath, "GPT-2's merges.txt")->type_name("FILE")->group("Data");
  vocab->needs(merges);
  merges->needs(vocab);
  app.add_option("--weights", o.weightsPath, "Hugging Face model.safetensors to start from (rank 0 reads it)")
      ->type_name("FILE")
      ->group("Data");
}

void addOptimizerOptions(CLI::App& app, Options& o) {
  app.add_option("--lr", o.learningRate, "AdamW's learning rate")->check(CLI::Range(0.0, 1e3))->group("Optimiser");
  app.add_option("--weight-decay", o.weightDecay)->check(CLI::Range(0.0, 1e3))->group("Optimiser");
  app.add_option("--beta1", o.beta1)->check(CLI::Range(0.0, 0.999999))->group("Optimiser");
  app.add_option("--beta2", o.beta2)->check(CLI::Range(0.0, 0.999999999))->group("Optimiser");
  app.add_option("--epsilon", o.epsilon)->check(CLI::Range(0.0, 1.0))->group("Optimiser");
  app.add_option("--clip-norm", o.clipNorm, "clip the gradient's norm to this (0: off)")
      ->check(CLI::Range(0.0, 1e9))
      ->group("Optimiser");
}

void addSyncOptions(CLI::App& app, Options& o) {
  const char* group = "Gradient synchronisation (GLOO_DEVICE_TRANSPORT chooses the transport)";
  app.add_flag("!--no-ddp", o.ddp, "train a single rank without the reducer, for comparison")->group(group);
  app.add_flag("--barrier,!--no-barrier", o.barrier, "barrier at the end of each step (default on)")->group(group);
  app.add_option("--bucket-cap-mb", o.bucketCapMb, "gradient bucket size in MiB")
      ->check(CLI::Range(0.0001, 2047.0))
      ->group(group);
  app.add_option("--first-bucket-mb", o.firstBucketMb, "size of the first bucket to be ready, in MiB")
      ->check(CLI::Range(0.0001, 2047.0))
      ->group(group);
  app.add_flag("--gradient-as-bucket-view", o.gradientAsBucketView, "gradients live in the buckets (saves a copy)")
      ->group(group);
  app.add_option("--segment-bytes", o.segmentBytes, "Gloo's all-reduce segment size (0: Gloo's default, 1 MiB)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->group(group);
  app.add_option("--plugin", o.pluginPath,
                 "shared library that registers the transport (default: "
                 "libgloo_bypass.so beside this program or in ../plugin, when the transport is not built into PyTorch)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--timeout", o.timeoutSeconds, "seconds a collective may take")
      ->check(CLI::Range(0.1, kMaxSeconds))
      ->group(group);
  app.add_option("--rendezvous-timeout", o.rendezvousTimeoutSeconds, "seconds to wait for all ranks at the start")
      ->check(CLI::Range(0.1, kMaxSeconds))
      ->group(group);
}

void addMemoryOptions(CLI::App& app, Options& o) {
  const char* group = "Sharding and memory";
  app.add_flag("--activation-checkpointing", o.activationCheckpointing,
               "keep each block's input only and compute the rest again in "
               "backward: less memory for one forward more, the same bits")
      ->group(group);
  app.add_flag("--memory-metrics", o.memoryMetrics,
               "report each step's bytes of parameters, gradients and optimiser state, and the "
               "peak of all tensors")
      ->group(group);
}

void addResultOptions(CLI::App& app, Options& o) {
  app.add_option("--metrics", o.metricsPath,
                 "file for the JSON lines of rank 0, - for standard output; with {rank} "
                 "in the name, one file a rank")
      ->type_name("FILE")
      ->group("Results");
  app.add_option("--checkpoint", o.checkpointPath, "file for checkpoints, replaced atomically (rank 0 writes it)")
      ->type_name("FILE")
      ->group("Results");
  app.add_option("--checkpoint-every", o.checkpointEvery, "steps between checkpoints (0: at the end only)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group("Results");
  app.add_option("--resume", o.resumePath, "checkpoint to continue from, bit for bit (rank 0 reads it)")
      ->type_name("FILE")
      ->group("Results");
  app.add_option("--save-model", o.saveModelPath, "write the final weights as a Hugging Face model.safetensors")
      ->type_name("FILE")
      ->group("Results");
  app.add_option("--step-markers", o.stepMarkers,
                 "mark each step in captures: rank 0 sends a UDP datagram there (port 9999 unless "
                 "given), from port 40000 + step modulo 25536, when the step's first bucket is handed over and when "
                 "its last one is done")
      ->type_name("ADDRESS[:PORT]")
      ->group("Results");
  app.add_option("--skip-first", o.skipFirst, "steps left out of medians and percentiles (interpolated, as numpy's)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->group("Results");
  app.add_flag("--verify-ranks", o.verifyRanks, "compare all ranks' parameter digests after every step")
      ->group("Results");
  app.add_flag("!--no-progress", o.progress, "no progress bar on a terminal")->group("Results");
}

std::string crossCheck(const Options& o) {
  if (o.checkpointEvery > 0 && o.checkpointPath.empty()) {
    return "--checkpoint-every needs --checkpoint FILE";
  }
  if (!o.resumePath.empty() && !o.weightsPath.empty()) {
    return "--resume and --weights exclude each other: a checkpoint holds the weights";
  }
  if (o.segmentBytes != 0 && o.segmentBytes < 64) {
    return "--segment-bytes: 0, or at least 64";
  }
  if (!o.stepMarkers.empty() && !parseMarkerAddress(o.stepMarkers)) {
    return fmt::format("--step-markers {}: neither an IPv4 address nor ADDRESS:PORT", o.stepMarkers);
  }
  if (!o.stepMarkers.empty() && !o.ddp) {
    return "--step-markers marks all-reduces, of which there are none with --no-ddp";
  }
  if (!o.stepMarkers.empty() && o.averaging.isUsed()) {
    return "--step-markers marks the reducer's all-reduces, of which there are none with --average";
  }
  if (o.compression.isUsed() && o.precision.hasMasters()) {
    return fmt::format(
        "--compress goes with --precision fp32 or fp64: what ranks send in {} has half the bytes already",
        name(o.precision.type));
  }
  if (o.averaging.isUsed() && o.compression.isUsed()) {
    return "--average goes without --compress, whose gradients it does not send";
  }
  if (o.averaging.isUsed() && o.precision.hasMasters()) {
    return fmt::format("--average goes with --precision fp32 and fp64, not with {}", name(o.precision.type));
  }
  if (o.tail == Tail::kWeighted && o.averaging.isUsed()) {
    return "--tail weighted goes without --average, whose ranks do not weigh their gradients: pad or drop";
  }
  if (o.pack && o.passages == Passages::kNone) {
    return "--pack packs passages: --passages lines or paragraphs";
  }
  if (o.streamShards && o.samples != 0) {
    return fmt::format("--stream-shards reads whole shards, not the first {} samples: give --samples 0", o.samples);
  }
  const std::string unstreamed = firstGiven({{o.evaluation.samples != 0, "--eval-samples (--eval-data evaluates)"},
                                             {o.tail != Tail::kDrop, "--tail"},
                                             {o.elastic.isUsed(), "--elastic"}});
  if (o.streamShards && !unstreamed.empty()) {
    return "--stream-shards reads whole shards, as many samples at each rank: it goes without " + unstreamed;
  }
  if (o.isPadded() && o.averaging.isUsed()) {
    return "--passages goes without --average, whose ranks do not weigh their gradients by their tokens, unless with "
           "--pack";
  }
  if (o.tail == Tail::kPad && o.elastic.isUsed()) {
    return "--tail pad goes without --elastic, which repeats no sample: weighted or drop";
  }
  const std::string ownState =
      firstGiven({{o.averaging.isUsed(), "--average"}, {o.compression.isUsed(), "--compress"}});
  if (o.elastic.isUsed() && !ownState.empty()) {
    return fmt::format("--elastic goes without {}: what a rank has for itself would be lost with it", ownState);
  }
  for (std::string fault :
       {crossCheck(o.precision), crossCheck(o.sharding, o), crossCheck(o.tracing), crossCheck(o.compression, o.ddp),
        crossCheck(o.averaging, o.ddp), crossCheck(o.modelParallel, o), crossCheck(o.schedule),
        crossCheck(o.targetLoss, o.barrier, o.averaging.isAsynchronous()), crossCheck(o.evaluation),
        crossCheck(o.elastic, o.spawn, o.checkpointPath, o.ddp)}) {
    if (!fault.empty()) {
      return fault;
    }
  }
  return {};
}

}  // namespace

Gpt2Config modelConfig(const Options& o) { return o.modelSizes ? *o.modelSizes : Gpt2Config::of(o.model); }

nlohmann::json trajectoryOptions(const Options& o) {
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
                            {"ddp", o.ddp}};
  if (o.modelSizes) {
    trajectory["model"] = {{"layers", o.modelSizes->layers},
                           {"hidden", o.modelSizes->hidden},
                           {"heads", o.modelSizes->heads},
                           {"vocabulary", o.modelSizes->vocabulary},
                           {"positions", o.modelSizes->positions}};
  }
  if (o.tail != Tail::kDrop) {
    trajectory["tail"] = nameOf(kTails, o.tail);
  }
  if (o.passages != Passages::kNone) {
    trajectory["passages"] = nameOf(kPassages, o.passages) + (o.pack ? ", packed" : "");
  }
  if (o.streamShards) {
    trajectory["stream_shards"] = true;
  }
  addToTrajectory(o.precision, trajectory);
  addToTrajectory(o.compression, trajectory);
  addToTrajectory(o.averaging, trajectory);
  return trajectory;
}

std::string firstDifference(const nlohmann::json& here, const nlohmann::json& there, const std::string& thereName) {
  for (const auto& [key, value] : here.items()) {
    const std::string other = there.contains(key) ? there[key].dump() : "nothing";
    if (value.dump() != other) {
      const bool ofTheText = key == "text" || key == "corpus_samples";  // a fingerprint; how many are trained on
      return fmt::format(
          "{}: {} here, {} {}{}", key, value.dump(), other, thereName,
          ofTheText ? " (of the text: give the same --data, --vocab, --merges, --samples and --eval-samples)" : "");
    }
  }
  for (const auto& [key, value] : there.items()) {
    if (!here.contains(key)) {
      return fmt::format("{}: nothing here, {} {}", key, value.dump(), thereName);
    }
  }
  return {};
}

std::variant<Options, std::string> parseOptions(int argc, const char* const* argv) {
  Options options;
  CLI::App app(
      "Trains GPT-2 data-parallel in C++ with PyTorch's own reducer over Gloo. GLOO_DEVICE_TRANSPORT=TCP, "
      "DPDK, UDP or RDMA chooses the transport; nothing else changes.",
      "ddp_train");
  app.get_formatter()->column_width(34);
  app.option_defaults()->always_capture_default();
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", std::string("ddp_train ") + commitName());
  addRunOptions(app, options);
  addPrecisionOptions(app, options.precision);
  addDataOptions(app, options);
  addOptimizerOptions(app, options);
  addScheduleOptions(app, options.schedule);
  addSyncOptions(app, options);
  addCompressionOptions(app, options.compression);
  addAveragingOptions(app, options.averaging);
  addModelParallelOptions(app, options.modelParallel);
  addShardingOptions(app, options.sharding);
  addMemoryOptions(app, options);
  addResultOptions(app, options);
  addTargetLossOptions(app, options.targetLoss);
  addTracingOptions(app, options.tracing);
  addElasticOptions(app, options.elastic);
  addEvaluationOptions(app, options.evaluation);
  if (auto text = readCommandLine(app, argc, argv)) {
    return *std::move(text);
  }
  if (options.averaging.isAsynchronous()) {
    options.barrier = false;  // it would make each step wait for the slowest rank
  }
  if (const std::string fault = crossCheck(options); !fault.empty()) {
    throw UsageError(fault);
  }
  return options;
}

}  // namespace gloo_bypass::trainer
