// What a run is asked to do: the command line, validated once.
//
// parseOptions() is the only place that knows flags; RankEnvironment (rank_environment.h) the only one that reads
// who this process is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/averaging_options.h"
#include "trainer/config/compression_options.h"
#include "trainer/config/elastic_options.h"
#include "trainer/config/evaluation_options.h"
#include "trainer/config/gpt2_config.h"
#include "trainer/config/model_parallel_options.h"
#include "trainer/config/precision_options.h"
#include "trainer/config/sharding_options.h"
#include "trainer/config/tracing_options.h"
#include "trainer/data/passages.h"
#include "trainer/data/sampler.h"
#include "trainer/metrics/target_loss.h"
#include "trainer/optimizer/schedule.h"

namespace gloo_bypass::trainer {

struct Options {
  // The run.
  int spawn = 0;                     // ranks to start here; 0: this process is one rank
  std::string model = "distilgpt2";  // a name, or the config.json that `modelSizes` are of
  std::optional<Gpt2Config> modelSizes;
  PrecisionOptions precision;
  int64_t batchSize = 8;  // samples a rank and micro-batch
  int64_t seqLength = 64;
  Tail tail = Tail::kDrop;
  Passages passages = Passages::kNone;  // other than kNone: samples of their own, unless packed
  bool pack = false;
  bool isPadded() const { return passages != Passages::kNone && !pack; }
  bool streamShards = false;
  int64_t samples = 400;  // 0: the whole text
  int64_t epochs = 1;
  int64_t steps = 0;  // 0: as many as the epochs hold
  int64_t accumulate = 1;
  uint64_t seed = 42;
  double dropout = 0.0;
  // Data.
  std::string dataPath;  // empty: the sample text beside the program
  std::string vocabPath, mergesPath;
  std::string weightsPath;  // model.safetensors; empty: random
  // Optimiser.
  double learningRate = 3e-4, weightDecay = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clipNorm = 0;  // 0: off
  ScheduleOptions schedule;
  // Gradient synchronisation.
  bool ddp = true;
  bool barrier = true;
  double bucketCapMb = 25, firstBucketMb = 1;  // MB of 2^20 bytes, as PyTorch counts them
  bool gradientAsBucketView = false;
  int64_t segmentBytes = 0;  // 0: Gloo's own default (1 MiB)
  CompressionOptions compression;
  AveragingOptions averaging;
  ModelParallelOptions modelParallel;
  std::string pluginPath;  // empty: beside the program, when needed
  double timeoutSeconds = 300;
  double rendezvousTimeoutSeconds = 120;
  // Memory.
  ShardingOptions sharding;
  bool activationCheckpointing = false;
  bool memoryMetrics = false;
  // Results.
  std::string metricsPath = "-";
  std::string checkpointPath;
  int64_t checkpointEvery = 0;  // steps; 0: at the end only
  std::string resumePath;
  std::string saveModelPath;
  TargetLossOptions targetLoss;
  std::string stepMarkers;  // address[:port] that rank 0 marks steps to; empty: none
  int64_t skipFirst = 1;    // steps left out of the medians
  bool verifyRanks = false;
  bool progress = true;
  TracingOptions tracing;
  ElasticOptions elastic;
  EvaluationOptions evaluation;
};

Gpt2Config modelConfig(const Options& options);

// What decides the numbers a run computes: ranks must agree on it, and a checkpoint continues only under the same.
nlohmann::json trajectoryOptions(const Options& options);

// Names the first difference between two trajectoryOptions() as "batch_size: 8 here, 16 there"; empty if none.
std::string firstDifference(const nlohmann::json& here, const nlohmann::json& there, const std::string& thereName);

// The options, validated, or a text to print (--help, --version). Throws UsageError, one line.
std::variant<Options, std::string> parseOptions(int argc, const char* const* argv);

}  // namespace gloo_bypass::trainer
