// Every flag of ddp_train: what it fills, its bounds, and what --help says.
#include <charconv>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/common/command_line.h"
#include "tools/common/version.h"
#include "trainer/config/choices.h"
#include "trainer/config/compatibility.h"
#include "trainer/config/options.h"

namespace gloo_bypass::trainer {
namespace {

constexpr double kMaxSeconds = 86'400;
constexpr int64_t kBillion = 1'000'000'000;
constexpr int kMaxRanks = 1024;

// The flags under one heading of --help.
class FlagGroup {
 public:
  FlagGroup(CLI::App& app, std::string heading) : app_(app), heading_(std::move(heading)) {}

  template <typename Number>
  CLI::Option* count(const char* flag, Number& value, int64_t least, int64_t most, const char* help) {
    return app_.add_option(flag, value, help)->check(CLI::Range(least, most))->group(heading_);
  }
  CLI::Option* real(const char* flag, double& value, double least, double most, const char* help = "") {
    return app_.add_option(flag, value, help)->check(CLI::Range(least, most))->group(heading_);
  }
  CLI::Option* text(const char* flag, std::string& value, const char* type, const char* help) {
    return app_.add_option(flag, value, help)->type_name(type)->group(heading_);
  }
  CLI::Option* file(const char* flag, std::string& path, const char* help) { return text(flag, path, "FILE", help); }
  CLI::Option* onOff(const char* flag, bool& value, const char* help) {
    return app_.add_flag(flag, value, help)->group(heading_);
  }
  template <typename Value>
  CLI::Option* choice(const char* flag, Value& value, const NamedChoices<Value>& choices, const char* help) {
    return app_
        .add_option_function<std::string>(
            flag, [&](const std::string& name) { value = valueOf(choices, name); }, help)
        ->check(CLI::IsMember(namesOf(choices)))
        ->default_str(nameOf(choices, value))
        ->group(heading_);
  }
  CLI::App& app() { return app_; }

 private:
  CLI::App& app_;
  std::string heading_;
};

void addRunFlags(FlagGroup run, Options& o) {
  run.count("--spawn", o.spawn, 1, kMaxRanks,
            "start N ranks on this machine and wait for them (otherwise RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT "
            "say who this rank is; none of them: a single rank)")
      ->type_name("N");
  auto* model = run.app()
                    .add_option("--model", o.model,
                                "distilgpt2 (81,912,576 parameters), gpt2 (124 million), gpt2-medium (355), gpt2-large "
                                "(774), gpt2-xl (1,558), or tiny, for quick tests")
                    ->check(CLI::IsMember(Gpt2Config::names()))
                    ->group("Run");
  run.app()
      .add_option_function<std::string>(
          "--model-config",
          [&o](const std::string& path) {
            o.model = path;
            o.modelSizes = Gpt2Config::fromFile(path);
          },
          "sizes of a GPT-2: Hugging Face's config.json, instead of --model")
      ->type_name("FILE")
      ->group("Run")
      ->excludes(model);
  run.count("--batch-size", o.batchSize, 1, 65536, "samples a rank and step (and micro-batch)");
  run.count("--seq-length", o.seqLength, 1, 1024, "tokens a sample");
  run.count("--epochs", o.epochs, 1, 1'000'000, "passes over the samples");
  run.count("--steps", o.steps, 0, kBillion, "optimiser steps instead of epochs (0: by epochs)");
  run.count("--accumulate", o.accumulate, 1, 65536,
            "micro-batches a step; only the last one synchronises (no_sync), but with --zero 2 and 3");
  run.app().add_option("--seed", o.seed, "of the initial weights, the shuffle and dropout")->group("Run");
  run.real("--dropout", o.dropout, 0, 0.99, "probability; the published DistilGPT2 was trained with 0.1");
  run.real("--layer-drop", o.layerDrop, 0, 0.99,
           "probability that a block is left out of a micro-batch, drawn by each rank; with --find-unused-parameters");
  run.choice("--precision", o.precision.type, kPrecisions,
             "of parameters, gradients and arithmetic; with bf16 and fp16 the optimiser holds fp32 masters, sums "
             "within an operation are fp32 and gradients are reduced in 16 bits");
  run.onOff(
      "--accumulate-fp32", o.precision.sumsInFp32,
      "with 16 bits and --accumulate, without --zero: micro-batches' gradients add up in fp32 and are rounded once a "
      "step, for 4 bytes more a parameter");
}

void addLossScaleFlags(FlagGroup scaling, PrecisionOptions& o) {
  scaling.text("--loss-scale", o.lossScale, "dynamic|N|off",
               "multiply the loss by this before backward and divide the gradients by it after the all-reduce: "
               "dynamic, a number, or off; steps with infinite gradients are left out unless off (default: dynamic for "
               "fp16, off for bf16)");
  scaling.real("--initial-loss-scale", o.initialLossScale, 1e-30, kLargestLossScale, "of a dynamic loss scale");
  scaling.count("--loss-scale-interval", o.lossScaleInterval, 1, kBillion,
                "steps without overflow before a dynamic loss scale doubles");
}

void addDataFlags(FlagGroup data, Options& o) {
  data.file("--data", o.dataPath,
            "text file to train on, or a folder that tokenise wrote (default: the sample text that comes along)");
  data.count("--samples", o.samples, 0, kBillion, "use the first N samples of the text (0: all)");
  auto* passages = data.choice("--passages", o.passages, kPassages,
                               "samples are passages, padded to --seq-length, with no loss on the padding: each line "
                               "(as of WikiText), or paragraphs between blank lines; none: the text is cut");
  data.onOff("--pack", o.pack,
             "passages one after the other in one row, an end-of-text token after each, that is cut into samples: no "
             "padding")
      ->needs(passages);
  data.onOff("--stream-shards", o.streamShards,
             "each rank reads some of the folder's shards, from front to back; which, and in what order, is drawn anew "
             "each epoch");
  data.choice("--tail", o.tail, kTails,
              "an epoch's last samples that do not fill a step: drop, pad (the epoch's first ones fill them up to a "
              "multiple of the ranks), or weighted (batches that differ by one sample, each weighing what it holds)");
  auto* vocab = data.file("--vocab", o.vocabPath, "GPT-2's vocab.json (without: one token a byte)");
  auto* merges = data.file("--merges", o.mergesPath, "GPT-2's merges.txt");
  vocab->needs(merges);
  merges->needs(vocab);
  data.file("--weights", o.weightsPath, "Hugging Face model.safetensors to start from (rank 0 reads it)");
}

void addOptimizerFlags(FlagGroup optimizer, Options& o) {
  optimizer.real("--lr", o.learningRate, 0, 1e3, "AdamW's learning rate");
  optimizer.real("--weight-decay", o.weightDecay, 0, 1e3);
  optimizer.real("--beta1", o.beta1, 0, 0.999999);
  optimizer.real("--beta2", o.beta2, 0, 0.999999999);
  optimizer.real("--epsilon", o.epsilon, 1e-30, 1);
  optimizer.real("--clip-norm", o.clipNorm, 0, 1e9, "clip the gradient's norm to this (0: off)");
}

void addScheduleFlags(FlagGroup schedule, ScheduleOptions& o) {
  schedule.choice("--schedule", o.shape, kScheduleShapes,
                  "after the warm-up: constant, or linear or cosine decay to --min-lr-ratio of the highest rate at the "
                  "run's last step");
  schedule.count("--warmup-steps", o.warmupSteps, 0, kBillion,
                 "steps in which the rate grows linearly from 0; the first step's is 0");
  schedule.real("--min-lr-ratio", o.minimumRatio, 0, 1, "what the decay leaves of the highest rate");
  schedule.count("--schedule-steps", o.steps, 0, kBillion,
                 "the step at which the decay ends, if not the run's last (0): for a run in several parts, or one that "
                 "goes on at the lowest rate");
  schedule.choice("--lr-scaling", o.scaling, kRateScalings,
                  "multiply --lr by (samples a step of all ranks, or of one with --average asynchronous, / "
                  "--lr-base-batch): linear, by the root of it: sqrt");
  schedule.count("--lr-base-batch", o.baseBatch, 0, kBillion,
                 "samples a step, of all ranks, that --lr is meant for (0: not given)");
}

void addSynchronisationFlags(FlagGroup sync, Options& o) {
  sync.onOff("!--no-ddp", o.ddp, "train a single rank without the reducer, for comparison");
  sync.choice("--collectives", o.collectives, kCollectives,
              "who runs what ranks exchange: PyTorch's ProcessGroupGloo (gloo), or this project's collectives, over "
              "shared memory within a host (own; with GLOO_DEVICE_TRANSPORT=DPDK, UDP or RDMA)");
  sync.choice(
      "--sums", o.sums, kSums,
      "how ranks' gradients are added: on the way, as the all-reduce does (reduced); by each rank in the order "
      "of the ranks, so that buckets, segments and algorithms change no bit (ordered); or in that order, and then what "
      "rounding lost (compensated). The last two send N/2 times as many bytes");
  sync.onOff("--barrier,!--no-barrier", o.barrier, "barrier at the end of each step (default on)");
  sync.real("--bucket-cap-mb", o.bucketCapMb, 0.0001, 2047, "gradient bucket size in MiB");
  sync.real("--first-bucket-mb", o.firstBucketMb, 0.0001, 2047, "size of the first bucket to be ready, in MiB");
  sync.onOff("--gradient-as-bucket-view", o.gradientAsBucketView, "gradients live in the buckets (saves a copy)");
  sync.onOff(
      "--find-unused-parameters", o.findUnusedParameters,
      "look in each step for parameters that the loss does not depend on, and let ranks say which they used: one "
      "small all-reduce a step more");
  sync.onOff("--static-graph", o.staticGraph,
             "promise that every step uses the same parameters as the first one. The first step's all-reduces begin "
             "when its backward has ended");
  sync.count("--segment-bytes", o.segmentBytes, 0, int64_t{1} << 31,
             "Gloo's all-reduce segment size (0: Gloo's default, 1 MiB)");
  sync.file("--plugin", o.pluginPath,
            "shared library that registers the transport (default: libgloo_bypass.so beside this program or in "
            "../plugin, when the transport is not built into PyTorch)");
  sync.real("--timeout", o.timeoutSeconds, 0.1, kMaxSeconds,
            "seconds a rank waits in a collective, also while rank 0 writes a checkpoint");
  sync.real("--rendezvous-timeout", o.rendezvousTimeoutSeconds, 0.1, kMaxSeconds,
            "seconds to wait for all ranks at the start; rank 0 reads its checkpoint meanwhile");
}

void addCompressionFlags(FlagGroup compression, CompressionOptions& o) {
  compression.choice("--compress", o.method, kCompressions,
                     "what ranks send instead of their gradients: casts (fp16, bf16), the largest or random elements "
                     "(topk, randomk), one bit an element (sign), three values (terngrad), a few levels (qsgd), low "
                     "rank (powersgd)");
  compression.real("--compress-ratio", o.ratio, 1e-6, 1, "topk, randomk: share of each tensor's elements that is sent");
  compression.choice("--compress-values", o.values, kCompressedValues,
                     "topk: values as they are (full), or in fp16, whose rounding error feedback remembers");
  compression.count("--compress-levels", o.levels, 1, 32767, "qsgd: levels above zero");
  compression.count("--compress-rank", o.rank, 1, 1024, "powersgd: rank of what is sent of each matrix");
  compression.count("--compress-warmup", o.warmupSteps, 0, kBillion,
                    "steps with the plain all-reduce before (default: 10 for powersgd, else 0)");
  compression.onOff("!--no-error-feedback", o.errorFeedback,
                    "topk, randomk, sign, powersgd: do not add what was not sent to the next step's gradient");
}

void addAveragingFlags(FlagGroup averaging, AveragingOptions& o) {
  averaging.choice("--average", o.method, kAveragings,
                   "instead of reducing every gradient: the mean of the parameters each --inner-steps (local-sgd), an "
                   "outer step by it (diloco), gradients to rank 0 and parameters back (central), the same without "
                   "waiting for others (asynchronous, without barriers), the mean with neighbours each step (gossip)");
  averaging.count("--inner-steps", o.innerSteps, 1, kBillion,
                  "local-sgd, diloco: steps between two meetings of the ranks");
  averaging.real("--outer-lr", o.outerRate, 0, 1e3, "diloco: rate of the outer step");
  averaging.real("--outer-momentum", o.outerMomentum, 0, 0.999999, "diloco: Nesterov momentum of the outer step");
  averaging.count("--staleness-bound", o.stalenessBound, -1, kBillion,
                  "asynchronous: steps that a rank may be ahead of the slowest before it waits (-1: any number)");
  averaging.choice(
      "--staleness-penalty", o.stalenessPenalty, kStalenessPenalties,
      "asynchronous: divide a gradient's rate by its staleness t, the updates that came before it since its "
      "parameters (inverse), or multiply it by exp(-0.1 t) (exponential)");
  averaging.choice("--gossip-topology", o.topology, kGossipTopologies,
                   "gossip: the two neighbours on a ring, one rank at a distance of 1, 2, 4, ... in turn, or random "
                   "pairs");
}

void addSharingFlags(CLI::App& app, Options& o) {
  FlagGroup model(app, "Model parallelism");
  model.choice("--model-parallel", o.modelParallel.method, kModelParallelisms,
               "ranks share one model instead of the samples: each has a part of every block (tensor), or some of the "
               "blocks, through which the micro-batches of --accumulate pass, all forwards first (gpipe) or one "
               "forward, one backward (1f1b)");
  model.count("--model-ranks", o.modelParallel.ranks, 0, kMaxRanks,
              "how many share a model: consecutive ranks; the others have copies of it, with samples of their own, and "
              "all average their gradients (0: all ranks share one)");
  FlagGroup memory(app, "Sharding and memory");
  memory.count("--zero", o.sharding.zero, 0, 3,
               "ZeRO's stage: what ranks hold a share of only. 1: the optimiser's state, 2: gradients too, 3: "
               "parameters too (0: nothing, DDP)");
  memory.onOff("--activation-checkpointing", o.activationCheckpointing,
               "keep each block's input only and compute the rest again in backward: less memory for one forward more, "
               "the same bits");
  memory.onOff("--selective-checkpointing", o.selectiveCheckpointing,
               "do not keep attention's scores, softmax and product, but compute them again in backward: saves most of "
               "long samples' memory for little time; the same bits");
  memory.onOff("--memory-metrics", o.memoryMetrics,
               "report each step's bytes of parameters, gradients and optimiser state, and the peak of all tensors");
}

void addResultFlags(FlagGroup results, Options& o) {
  results.file("--metrics", o.metricsPath,
               "file for the JSON lines of rank 0, - for standard output; with {rank} in the name, one file a rank");
  results.file("--checkpoint", o.checkpointPath, "file for checkpoints, replaced atomically (rank 0 writes it)");
  results.count("--checkpoint-every", o.checkpointEvery, 0, kBillion, "steps between checkpoints (0: at the end only)");
  results.file("--resume", o.resumePath, "checkpoint to continue from, bit for bit (rank 0 reads it)");
  results.file("--save-model", o.saveModelPath, "write the final weights as a Hugging Face model.safetensors");
  results.text("--step-markers", o.stepMarkers, "ADDRESS[:PORT]",
               "mark each step in captures: rank 0 sends a UDP datagram there (port 9999 unless given), from port "
               "40000 + step modulo 25536, when the step's first bucket is handed over and when its last one is done");
  results.count("--skip-first", o.skipFirst, 0, 1'000'000,
                "steps left out of medians and percentiles (interpolated, as numpy's)");
  results.onOff("--verify-ranks", o.verifyRanks, "compare all ranks' parameter digests after every step");
  results.onOff("!--no-progress", o.progress, "no progress bar on a terminal");
  results.real("--target-loss", o.targetLoss.loss, 0, 1e9,
               "end the run at the step after which the mean over ranks of the loss, averaged over the last "
               "--target-window steps, is at most this (0: no target); never reached, the run ends as without, with a "
               "line and status 0");
  results.count("--target-window", o.targetLoss.window, 1, 1'000'000,
                "steps over which the loss is averaged for --target-loss");
}

void addTracingFlags(FlagGroup tracing, TracingOptions& o) {
  tracing.file("--trace", o.tracePath,
               "Chrome trace of every step and bucket of all ranks, for Perfetto or chrome://tracing; rank 0 writes it "
               "when training has ended");
  tracing.onOff("--measure-peak", o.measurePeak,
                "measure a matrix product of the model's shape on all ranks at once before the first step, and report "
                "mfu in per cent of it");
  tracing
      .real("--peak-flops", o.peakFlopsPerSecond, 0, 1e18,
            "report mfu in per cent of X floating-point operations a second and rank (0: no mfu)")
      ->type_name("X");
}

bool parseCount(const char* begin, const char* end, int& count) {
  const auto [stop, error] = std::from_chars(begin, end, count);
  return error == std::errc() && stop == end && count >= 1 && count <= kMaxRanks;
}

// "MIN:MAX"; empty: understood.
std::string parseRange(const std::string& text, ElasticOptions& o) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !parseCount(begin, begin + colon, o.minRanks) ||
      !parseCount(begin + colon + 1, end, o.maxRanks)) {
    return fmt::format("{}: must be MIN:MAX, two numbers of ranks from 1 to {}", text, kMaxRanks);
  }
  if (o.minRanks > o.maxRanks) {
    return fmt::format("{}: MIN is larger than MAX", text);
  }
  o.range = text;
  return {};
}

void addElasticFlags(FlagGroup elastic, ElasticOptions& o) {
  elastic
      .text("--elastic", o.range, "MIN:MAX",
            "go on from --checkpoint with the ranks that are left when one fails, down to MIN; they share the "
            "samples of a step of MAX ranks (--batch-size x MAX), however many they are")
      ->check([&o](const std::string& text) { return parseRange(text, o); });
  elastic.count("--max-restarts", o.maxRestarts, 0, 1'000'000, "with --elastic: restarts before the run is given up");
  elastic.real("--rejoin-after", o.rejoinSeconds, 0, kMaxSeconds,
               "with --elastic: seconds after which a failed rank's place is filled again, at the next restart (0: at "
               "the one that its failure causes)");
  elastic.file("--log-samples", o.samplesPath,
               "append a JSON line a rank and step to FILE: which samples it trained on");
}

void addEvaluationFlags(FlagGroup evaluation, EvaluationOptions& o) {
  auto* samples = evaluation.count("--eval-samples", o.samples, 0, kBillion,
                                   "hold the last N samples of the text out of training, and report loss and "
                                   "perplexity on them when training has ended");
  evaluation.file("--eval-data", o.dataPath, "report them on this text instead, and train on all samples")
      ->excludes(samples);
  evaluation.count("--eval-every", o.every, 0, kBillion, "steps between evaluations (0: at the end only)");
}

void addFlags(CLI::App& app, Options& o) {
  addRunFlags({app, "Run"}, o);
  addLossScaleFlags({app, "Loss scaling (with --precision bf16 or fp16)"}, o.precision);
  addDataFlags({app, "Data"}, o);
  addOptimizerFlags({app, "Optimiser"}, o);
  addScheduleFlags({app, "Learning rate (of AdamW, from --lr)"}, o.schedule);
  addSynchronisationFlags({app, "Gradient synchronisation (GLOO_DEVICE_TRANSPORT chooses the transport)"}, o);
  addCompressionFlags({app, "Gradient compression"}, o.compression);
  addAveragingFlags({app, "Low communication"}, o.averaging);
  addSharingFlags(app, o);
  addResultFlags({app, "Results"}, o);
  addTracingFlags({app, "Where the time goes"}, o.tracing);
  addElasticFlags({app, "Ranks that fail"}, o.elastic);
  addEvaluationFlags({app, "Evaluation"}, o.evaluation);
}

}  // namespace

std::variant<Options, std::string> parseOptions(int argc, const char* const* argv) {
  Options options;
  CLI::App app(
      "Trains GPT-2 data-parallel in C++ with PyTorch's own reducer over Gloo, or over collectives of our own. "
      "GLOO_DEVICE_TRANSPORT=TCP, DPDK, UDP or RDMA chooses the transport; nothing else changes.",
      "ddp_train");
  app.get_formatter()->column_width(34);
  app.option_defaults()->always_capture_default();
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_version_flag("--version", std::string("ddp_train ") + commitName());
  addFlags(app, options);
  if (auto text = readCommandLine(app, argc, argv)) {
    return *std::move(text);
  }
  if (options.averaging.isAsynchronous()) {
    if (options.barrier && app.count("--barrier") > 0) {
      throw UsageError("--barrier: with --average asynchronous ranks do not wait for each other; leave it out");
    }
    options.barrier = false;  // it would make each step wait for the slowest rank
  }
  const auto isGiven = [&](const char* flag) { return app.count(flag) > 0; };
  if (const std::string fault = conflictIn(options, isGiven); !fault.empty()) {
    throw UsageError(fault);
  }
  return options;
}

}  // namespace gloo_bypass::trainer
