// The command line of a run, validated once. Other rooms read these structs; flags.cc fills them, compatibility.cc
// refuses combinations, trajectory.cc says which of them ranks and checkpoints must agree on. No libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "trainer/config/gpt2_config.h"

namespace gloo_bypass::trainer {

enum class Precision { kFloat32, kFloat64, kBFloat16, kFloat16 };

// The number of bits of parameters, gradients and arithmetic, and the factor that scales the loss.
struct PrecisionOptions {
  Precision type = Precision::kFloat32;
  std::string lossScale;             // "dynamic", "off" or a number; empty: dynamic for fp16, off for the others
  double initialLossScale = 65536;   // of a dynamic one; this and the next are torch.cuda.amp.GradScaler's defaults
  int64_t lossScaleInterval = 2000;  // steps without overflow after which a dynamic one is doubled

  bool sumsInFp32 = false;  // micro-batches' gradients, with 16 bits

  // Of an element of the parameters and their gradients.
  int64_t parameterBytes() const { return hasMasters() ? 2 : type == Precision::kFloat64 ? 8 : 4; }
  // Parameters in 16 bits, fp32 masters in the optimiser.
  bool hasMasters() const { return type == Precision::kBFloat16 || type == Precision::kFloat16; }
  bool hasDynamicScale() const { return lossScale.empty() ? type == Precision::kFloat16 : lossScale == "dynamic"; }
  bool isScaled() const { return hasDynamicScale() || (!lossScale.empty() && lossScale != "off"); }
};

// How a partial last step of an epoch is handled.
enum class Tail {
  kDrop,
  kPad,  // the epoch's first samples fill it up to a multiple of the ranks: DistributedSampler with a DataLoader that
         // keeps the last batch
  kWeighted,  // the first ranks have one sample more than the others, which may have none
};

enum class Passages {
  kNone,
  kLines,       // WikiText's: a paragraph is a line
  kParagraphs,  // of a text with wrapped lines: blank lines are between them
};

enum class ScheduleShape { kConstant, kLinear, kCosine };
enum class RateScaling { kNone, kLinear, kSquareRoot };

struct ScheduleOptions {
  ScheduleShape shape = ScheduleShape::kConstant;
  int64_t warmupSteps = 0;
  double minimumRatio = 0;  // of the highest rate, at the end of linear and cosine and after it
  int64_t steps = 0;        // at which the decay ends; 0: the run's last
  RateScaling scaling = RateScaling::kNone;
  int64_t baseBatch = 0;  // samples a step, of all ranks, that --lr is meant for; 0: not given

  int64_t endOfDecay(int64_t runSteps) const { return steps > 0 ? steps : runSteps; }
  // false: every step has the rate of --lr, and neither metrics nor checkpoints mention a schedule.
  bool isUsed() const { return shape != ScheduleShape::kConstant || warmupSteps > 0 || scaling != RateScaling::kNone; }
};

// How the ranks' gradients are added.
enum class Sums {
  kReduced,      // on the way, as the all-reduce does
  kOrdered,      // by each rank, in the order of the ranks
  kCompensated,  // the same, with what rounding lost
};

// Who runs what ranks exchange.
enum class Collectives {
  kGloo,  // PyTorch's ProcessGroupGloo
  kOwn,   // collectives/, from the plug-in
};

enum class CompressionMethod { kNone, kFp16, kBf16, kTopK, kRandomK, kSign, kTernGrad, kQsgd, kPowerSgd };

enum class CompressedValues { kFull, kFp16 };

struct CompressionOptions {
  CompressionMethod method = CompressionMethod::kNone;
  double ratio = 0.01;                                // top-k, random-k: share of each tensor's elements that is sent
  CompressedValues values = CompressedValues::kFull;  // top-k: their dtype
  int64_t levels = 16;                                // QSGD: above zero
  int64_t rank = 4;                                   // PowerSGD
  std::optional<int64_t> warmupSteps;                 // as given; plainSteps() has the default
  bool errorFeedback = true;                          // where the method has it

  bool isUsed() const { return method != CompressionMethod::kNone; }
  bool isSparse() const { return method == CompressionMethod::kTopK || method == CompressionMethod::kRandomK; }
  // By all-gather; the others by all-reduce.
  bool isGathered() const {
    return method == CompressionMethod::kTopK || method == CompressionMethod::kSign ||
           method == CompressionMethod::kTernGrad || method == CompressionMethod::kQsgd;
  }
  bool canFeedBack() const {
    return isSparse() || method == CompressionMethod::kSign || method == CompressionMethod::kPowerSgd;
  }
  // Whether each rank writes a file of its own beside a checkpoint: what it did not send, or PowerSGD's last matrices.
  bool keepsRankState() const { return method == CompressionMethod::kPowerSgd || (canFeedBack() && errorFeedback); }
  // Steps with the plain all-reduce before.
  int64_t plainSteps() const { return warmupSteps.value_or(method == CompressionMethod::kPowerSgd ? 10 : 0); }
};

enum class AveragingMethod { kNone, kLocalSgd, kDiLoCo, kCentral, kAsynchronous, kGossip };
enum class StalenessPenalty { kNone, kInverse, kExponential };
enum class GossipTopology { kRing, kExponential, kRandom };

// How ranks meet where they do not reduce every gradient.
struct AveragingOptions {
  AveragingMethod method = AveragingMethod::kNone;
  int64_t innerSteps = 10;                      // local-sgd, diloco: optimiser steps between two meetings
  double outerRate = 0.7, outerMomentum = 0.9;  // diloco
  int64_t stalenessBound = -1;  // asynchronous: steps that a rank may be ahead of the slowest; -1: any number
  StalenessPenalty stalenessPenalty = StalenessPenalty::kNone;
  GossipTopology topology = GossipTopology::kRing;

  bool isUsed() const { return method != AveragingMethod::kNone; }
  bool isAsynchronous() const { return method == AveragingMethod::kAsynchronous; }
  bool hasInnerSteps() const { return method == AveragingMethod::kLocalSgd || method == AveragingMethod::kDiLoCo; }
  // Whether each rank writes a file of its own beside a checkpoint.
  bool keepsRankState() const { return isUsed() && !isAsynchronous() && method != AveragingMethod::kCentral; }
};

enum class ModelParallelism {
  kNone,    // each rank has the model to itself
  kTensor,  // a part of each block (Shoeybi et al. 2019)
  kGpipe,   // some of the blocks; all forwards, then all backwards (Huang et al. 2019)
  k1F1B,    // some of the blocks; a backward as soon as it can be (Narayanan et al. 2019)
};

// Where a rank stands in a mesh of `copies` of the model, each with samples of its own, by `parts` of a copy.
// Consecutive ranks share a copy: they exchange the most, and are the likeliest to share a host.
struct MeshPlace {
  int copy = 0, copies = 1;
  int part = 0, parts = 1;
};

struct ModelParallelOptions {
  ModelParallelism method = ModelParallelism::kNone;
  int64_t ranks = 0;  // that share one model; 0: all of the run

  bool isUsed() const { return method != ModelParallelism::kNone; }
  bool isPipeline() const { return method == ModelParallelism::kGpipe || method == ModelParallelism::k1F1B; }
  MeshPlace placeOf(int rank, int worldSize) const {
    const int parts = !isUsed() ? 1 : ranks == 0 ? worldSize : static_cast<int>(ranks);
    return {.copy = rank / parts, .copies = worldSize / parts, .part = rank % parts, .parts = parts};
  }
};

struct ShardingOptions {
  int64_t zero = 0;  // ZeRO's stage; 0: every rank holds everything (DDP)
  bool isUsed() const { return zero > 0; }
};

// Training that outlives its ranks.
struct ElasticOptions {
  std::string range;  // "MIN:MAX" as given; empty: not elastic
  int minRanks = 0, maxRanks = 0;
  int maxRestarts = 3;
  double rejoinSeconds = 30;  // after which the slot of a rank that failed is used again, at the next restart
  std::string samplesPath;    // --log-samples; empty: none

  bool isUsed() const { return maxRanks > 0; }
};

struct TargetLossOptions {
  double loss = 0;     // the run ends at or below it; 0: no target
  int64_t window = 1;  // steps

  bool isUsed() const { return loss > 0; }
};

struct TracingOptions {
  std::string tracePath;  // Chrome trace of all ranks, which rank 0 writes at the end; empty: none
  bool measurePeak = false;
  double peakFlopsPerSecond = 0;  // of one rank, as given; 0: not given
};

// The loss on text that is not trained on. Only the first decides what a run computes, by leaving samples out.
struct EvaluationOptions {
  int64_t samples = 0;   // the last ones of the text, held out of training; 0: none
  std::string dataPath;  // another text, all of it; empty: none
  int64_t every = 0;     // steps; 0: at the end only

  bool isUsed() const { return samples > 0 || !dataPath.empty(); }
};

struct Options {
  // The run.
  int spawn = 0;                     // ranks to start here; 0: this process is one rank
  std::string model = "distilgpt2";  // a name, or the path of the config.json that gave `modelSizes`
  std::optional<Gpt2Config> modelSizes;
  PrecisionOptions precision;
  int64_t batchSize = 8;  // samples a rank and micro-batch
  int64_t seqLength = 64;
  int64_t epochs = 1;
  int64_t steps = 0;  // 0: as many as the epochs hold
  int64_t accumulate = 1;
  uint64_t seed = 42;
  double dropout = 0.0;
  double layerDrop = 0.0;  // probability that a block is left out of a micro-batch
  // Data.
  std::string dataPath;   // empty: the sample text beside the program
  int64_t samples = 400;  // 0: the whole text
  Tail tail = Tail::kDrop;
  Passages passages = Passages::kNone;  // other than kNone: samples of their own, unless packed
  bool pack = false;
  bool isPadded() const { return passages != Passages::kNone && !pack; }
  bool streamShards = false;
  std::string vocabPath, mergesPath;
  std::string weightsPath;  // model.safetensors; empty: random
  // Optimiser.
  double learningRate = 3e-4, weightDecay = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clipNorm = 0;  // 0: off
  ScheduleOptions schedule;
  // Gradient synchronisation.
  bool ddp = true;
  Collectives collectives = Collectives::kGloo;
  Sums sums = Sums::kReduced;
  bool barrier = true;
  double bucketCapMb = 25, firstBucketMb = 1;  // MB of 2^20 bytes, as PyTorch counts them
  bool gradientAsBucketView = false;
  bool findUnusedParameters = false, staticGraph = false;
  // The backward, of those that synchronise, in whose order the reducer cuts its buckets anew; 0: never.
  int64_t rebuildsBucketsAfter() const { return findUnusedParameters ? 0 : staticGraph ? 2 : 1; }
  int64_t segmentBytes = 0;  // 0: Gloo's own default (1 MiB)
  CompressionOptions compression;
  AveragingOptions averaging;
  ModelParallelOptions modelParallel;
  std::string pluginPath;  // empty: beside the program, when needed
  double timeoutSeconds = 300;
  double rendezvousTimeoutSeconds = 120;
  ElasticOptions elastic;
  // Memory.
  ShardingOptions sharding;
  bool activationCheckpointing = false, selectiveCheckpointing = false;
  bool memoryMetrics = false;
  // Results.
  std::string metricsPath = "-";
  std::string checkpointPath;
  int64_t checkpointEvery = 0;  // steps; 0: at the end only
  std::string resumePath;
  std::string saveModelPath;
  TargetLossOptions targetLoss;
  std::string stepMarkers;  // address[:port] of the step markers that rank 0 sends; empty: none
  int64_t skipFirst = 1;    // steps left out of the medians
  bool verifyRanks = false;
  bool progress = true;
  TracingOptions tracing;
  EvaluationOptions evaluation;

  // --no-ddp is a rank alone: it has nobody to wait for.
  bool endsStepsTogether() const { return ddp && barrier; }
  // What ranks exchange in a step: buckets of gradients ("all_reduce"), or what the option of this name has instead.
  std::string exchange() const {
    return !ddp                     ? "nothing"
           : compression.isUsed()   ? "--compress"
           : sums != Sums::kReduced ? "--sums"
           : averaging.isUsed()     ? "--average"
           : sharding.isUsed()      ? "--zero"
           : modelParallel.isUsed() ? "--model-parallel"
                                    : "all_reduce";
  }
  // Whether each rank writes a file of its own beside a checkpoint.
  bool keepsRankState() const { return averaging.keepsRankState() || compression.keepsRankState(); }
};

inline Gpt2Config modelConfig(const Options& o) { return o.modelSizes ? *o.modelSizes : Gpt2Config::of(o.model); }

// The options, validated, or a text to print (--help, --version). Throws UsageError, one line.
std::variant<Options, std::string> parseOptions(int argc, const char* const* argv);

}  // namespace gloo_bypass::trainer
