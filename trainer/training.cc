#include "trainer/training.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "tools/common/machine.h"
#include "tools/common/version.h"
#include "trainer/checkpoint/rank_state.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/data/batches.h"
#include "trainer/distributed/averaging/averaging.h"
#include "trainer/distributed/communicator.h"
#include "trainer/distributed/data_parallel.h"
#include "trainer/distributed/elastic/elastic_run.h"
#include "trainer/distributed/model_parallel/shared_model.h"
#include "trainer/distributed/sharding/sharded_parallel.h"
#include "trainer/files/file_io.h"
#include "trainer/files/finite.h"
#include "trainer/files/safetensors.h"
#include "trainer/metrics/evaluation/evaluation.h"
#include "trainer/metrics/metrics.h"
#include "trainer/metrics/progress.h"
#include "trainer/metrics/target_loss.h"
#include "trainer/metrics/tracing/peak_flops.h"
#include "trainer/metrics/tracing/tracer.h"
#include "trainer/model/blas.h"
#include "trainer/model/gpt2.h"
#include "trainer/model/precision/arithmetic.h"
#include "trainer/model/tensor_memory.h"
#include "trainer/optimizer/master_weights.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/schedule.h"

namespace gloo_bypass::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double secondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Dropout's randomness is a function of where in the run a rank is, not of what ran before: a resumed run needs no
// generator state to go on exactly. (SplitMix64's finaliser, so that neighbouring inputs share nothing.)
uint64_t microBatchSeed(uint64_t seed, int rank, int64_t microBatch) {
  uint64_t z =
      seed + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(microBatch) * 65536 + static_cast<uint64_t>(rank) + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// At least 1.
int64_t randomNumber() {
  std::random_device entropy;
  return std::uniform_int_distribution<int64_t>(1)(entropy);
}

double peakMemoryMb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

std::string metricsPathOf(const Options& options, int rank) {
  constexpr std::string_view kPlaceholder = "{rank}";
  std::string path = options.metricsPath;
  const size_t at = path.find(kPlaceholder);
  if (at != std::string::npos) {
    return path.replace(at, kPlaceholder.size(), std::to_string(rank));
  }
  return rank == 0 ? path : std::string();
}

// Of all ranks, unless each one's gradient is an update.
int64_t samplesOfAnUpdate(const Options& options, const Batches& batches) {
  return (options.averaging.isAsynchronous() ? options.batchSize : batches.globalBatch()) * options.accumulate;
}

// Halving the largest loss scale so often makes it 1: gradients that are infinite even then do not come from the scale.
constexpr int64_t kMostStepsLeftOut = 128;

std::string textOf(double loss) { return std::isfinite(loss) ? fmt::format("{:g}", loss) : nameOfNotFinite(loss); }

// Why a run must not go on after this step, in one line; empty: it may. Loss scaling leaves out steps whose gradients
// are not finite, but no scale mends a loss that is not.
std::string divergence(const StepMetrics& metrics, int64_t stepsLeftOut) {
  if (!std::isfinite(metrics.loss)) {
    return fmt::format("step {}: the loss is {}", metrics.step, textOf(metrics.loss));
  }
  if (metrics.meanLoss && !std::isfinite(*metrics.meanLoss)) {
    return fmt::format("step {}: the mean over ranks of the loss is {}, this rank's is {}", metrics.step,
                       textOf(*metrics.meanLoss), textOf(metrics.loss));
  }
  return stepsLeftOut <= kMostStepsLeftOut
             ? ""
             : fmt::format("step {}: gradients were not finite in {} steps in a row, whatever the loss scale",
                           metrics.step, stepsLeftOut);
}

class Run {
 public:
  Run(const Options& options, const RankEnvironment& environment)
      : options_(options),
        environment_(environment),
        elastic_(options.elastic, options.checkpointPath, options.resumePath, environment.rank, environment.worldSize),
        trajectory_(trajectoryOptions(options)),
        dataRank_(options.modelParallel.dataRank(environment.rank)),
        dataRanks_(options.modelParallel.dataRanks(environment.worldSize)),
        batches_(options, dataRank_, dataRanks_),
        lastStep_(options.steps > 0 ? options.steps : options.epochs * batches_.stepsPerEpoch()),
        schedule_(options.schedule, options.learningRate, lastStep_, samplesOfAnUpdate(options, batches_)),
        target_(options.targetLoss),
        evaluation_(options, batches_, dataRank_, dataRanks_),
        model_(modelConfig(options), arithmetic::scalarTypeOf(options.precision.type),
               ModelShare(options.modelParallel.method, environment.rank, environment.worldSize, modelConfig(options))),
        weights_(mastersOf(model_)),
        units_(layOutUnits(model_, options.sharding.zero, environment.rank, environment.worldSize)),
        optimizer_(units_.empty() ? makeOptimizer(model_, weights_, options)
                                  : std::make_unique<AdamW>(shardsOf(units_), options)),
        summary_(options.skipFirst),
        tracer_(options.tracing.tracePath, environment.rank) {
    addToTrajectory(options.schedule, lastStep_, trajectory_);
    model_.checkpointActivations(options.activationCheckpointing);
    trajectory_["world_size"] = options.elastic.isUsed() ? options.elastic.maxRanks : dataRanks_;
    trajectory_["corpus_samples"] = batches_.sampleCount();
    trajectory_["text"] = batches_.corpus().fingerprint();
  }

  void execute();

 private:
  void loadState();
  void connect();
  void resume();
  void forward(int64_t step, int64_t micro, StepMetrics& metrics);
  void backward(int64_t step, int64_t micro, StepMetrics& metrics);
  StepMetrics trainStep(int64_t step);
  void repeatBucketRebuild();
  void verifyRanks(StepMetrics& metrics);
  std::string evaluate(int64_t step);
  void endIfDiverged(const std::string& reason) const;
  void maybeCheckpoint(int64_t step);
  void writeRecord(nlohmann::json record);
  void writeStart();
  void writeSummary(double wallSeconds);
  std::vector<NamedValues> moreState() {
    return withoutEmpty({{"loss_scaler", optimizer_->scalerState()}, {target_.stateName(), target_.state()}});
  }
  std::optional<ByteCounts> readBytes() { return communicator_ ? communicator_->byteCounter().read() : std::nullopt; }
  bool isRoot() const { return environment_.rank == 0; }

  const Options& options_;
  const RankEnvironment& environment_;
  ElasticRun elastic_;
  nlohmann::json trajectory_;
  int dataRank_, dataRanks_;  // of those that have samples of their own
  Batches batches_;
  int64_t lastStep_, gradientBytes_ = 0;
  Schedule schedule_;
  TargetLoss target_;
  Evaluation evaluation_;
  Gpt2 model_;
  Gpt2 weights_;                 // what the optimiser updates: the model's own parameters, or their fp32 masters
  std::vector<FlatUnit> units_;  // none without --zero
  std::unique_ptr<AdamW> optimizer_;
  std::optional<Communicator> communicator_;
  std::unique_ptr<Parallelism> parallelism_;
  std::optional<CheckpointFile> checkpoint_;  // rank 0's, until resumed
  std::optional<Gpt2> whole_;                 // rank 0's, until each rank has its part of a model that ranks share
  std::map<int64_t, at::Tensor> losses_;      // by micro-batch: between its forward and its backward
  TrainingPosition position_;                 // of the checkpoint to go on from
  int64_t run_ = 0;                           // TrainingPosition's, of this run; 0: not agreed yet
  nlohmann::json evaluated_ = nlohmann::json::object();  // last
  int64_t checkpointedStep_ = 0;
  MetricsSummary summary_;
  std::optional<LineWriter> metrics_;
  Tracer tracer_;
  std::optional<double> peakFlopsPerSecond_;
};

void Run::loadState() {
  if (!options_.checkpointPath.empty() &&
      (isRoot() || options_.averaging.keepsRankState() || options_.compression.keepsRankState())) {
    checkReplaceable(options_.checkpointPath);
  }
  if (!options_.checkpointPath.empty()) {
    tidyRankFiles(options_.checkpointPath, environment_.rank, environment_.worldSize);
  }
  if (!isRoot()) {
    return;  // rank 0's values arrive by broadcast
  }
  if (!options_.saveModelPath.empty()) {
    checkReplaceable(options_.saveModelPath);
  }
  elastic_.countStart();
  if (options_.modelParallel.isUsed()) {
    whole_.emplace(model_.config(), model_.named().front().second.scalar_type());
  }
  Gpt2& weights = whole_ ? *whole_ : weights_;
  if (const std::string& path = elastic_.startingPoint(); !path.empty()) {
    position_ = checkpoint_.emplace(path, weights, trajectory_).position();
    if (position_.step >= lastStep_ &&
        !options_.elastic.isUsed()) {  // an elastic one may have lost a rank after its last step
      throw UsageError(fmt::format("{} has done {} steps already, of {} asked for: raise --steps or --epochs", path,
                                   position_.step, lastStep_));
    }
    checkpoint_->readInto(weights, moreState());
    if (target_.isReached() && !options_.elastic.isUsed()) {
      throw UsageError(fmt::format("{} has reached the loss of {} already, at step {}: lower --target-loss", path,
                                   options_.targetLoss.loss, position_.step));
    }
  } else if (!options_.weightsPath.empty()) {
    loadWeights(weights, options_.weightsPath);
  } else {
    weights.initialize(options_.seed);
  }
  optimizer_->weightsChanged();
}

void Run::connect() {
  if (!options_.ddp) {
    parallelism_ = std::make_unique<Parallelism>(*optimizer_);
    tracer_.start(nullptr, model_.parameters());
    return;
  }
  nlohmann::json agreed = trajectory_;
  agreed["steps"] = lastStep_;
  agreed["barrier"] = options_.barrier;
  agreed["target_loss"] = {options_.targetLoss.loss, options_.targetLoss.window};
  agreed["verify_ranks"] = options_.verifyRanks;
  agreed["resume"] = !options_.resumePath.empty();
  agreed["zero"] = options_.sharding.zero;
  agreed["model_parallel"] = nameOf(options_.modelParallel.method);
  agreed["elastic"] = options_.elastic.range;
  agreed["evaluation"] = {evaluation_.sampleCount(), options_.evaluation.every};
  agreed["tracing"] = agreement(options_.tracing);
  if (options_.modelParallel.isUsed()) {
    agreed["activation_checkpointing"] = options_.activationCheckpointing;  // it repeats collectives
  }
  // Files that all ranks take part in; of plain DDP's, rank 0 alone may know. Named so that what makes the difference
  // is named first.
  for (const auto& [method, isUsed] : {std::pair("zero", options_.sharding.zero > 0),
                                       {"model_parallel", options_.modelParallel.isUsed()},
                                       {"averaging", options_.averaging.isUsed()},
                                       {"compression", options_.compression.isUsed()}}) {
    if (isUsed) {
      agreed[fmt::format("{}_checkpoint", method)] = {!options_.checkpointPath.empty(), options_.checkpointEvery};
      agreed[fmt::format("{}_save_model", method)] = !options_.saveModelPath.empty();
    }
  }
  communicator_.emplace(environment_, options_, agreed);
  DataParallel::broadcast(*communicator_, optimizer_->masters());
  if (options_.averaging.isUsed()) {
    parallelism_ = makeAveraging(options_, model_, *optimizer_, *communicator_);
  } else if (options_.modelParallel.isUsed()) {
    parallelism_ = makeSharedModel(model_, whole_ ? &*whole_ : nullptr, *optimizer_, *communicator_, options_);
    whole_.reset();
  } else if (!units_.empty()) {
    parallelism_ = std::make_unique<ShardedParallel>(model_, *optimizer_, units_, *communicator_, options_);
  } else {
    parallelism_ = std::make_unique<DataParallel>(model_, *optimizer_, *communicator_, options_);
  }
  tracer_.start(&*communicator_, model_.parameters());
  gradientBytes_ = parallelism_->synchronisedBytes(model_.parameters());
}

void Run::resume() {
  // Rank 0's: only it has read the file.
  const auto start = at::tensor({position_.step, elastic_.generation(), position_.run}, at::kLong);
  if (communicator_) {
    DataParallel::broadcast(*communicator_, {start});
  }
  const auto step = start[0].item<int64_t>();
  elastic_.follow(step, start[1].item<int64_t>());
  position_ = {.step = step, .run = start[2].item<int64_t>()};
  if (step == 0) {
    return;  // elastic, without a checkpoint yet
  }
  parallelism_->loadMoments(checkpoint_ ? std::bind_front(&CheckpointFile::read, &*checkpoint_) : MomentSource());
  checkpoint_.reset();
  if (communicator_) {
    if (!parallelism_->holdsParts()) {
      DataParallel::broadcast(*communicator_, optimizer_->firstMoments());
      DataParallel::broadcast(*communicator_, optimizer_->secondMoments());
    }
    for (const auto& state : moreState()) {
      DataParallel::broadcast(*communicator_, {tensorOf(state)});
    }
  }
  if (!isRoot()) {
    target_.forgetBytes();
  }
  if (target_.isReached()) {
    lastStep_ = step;  // elastic: a rank was lost after its last step
  }
  optimizer_->setStepCount(position_.step);
  if (communicator_) {
    if (parallelism_->learnsFromBackward()) {
      repeatBucketRebuild();
    }
    if (const auto state = parallelism_->rankState(); !state.empty()) {
      RankStateFile(options_.resumePath, position_.step, environment_.rank).load(state, position_.run);
      // The next checkpoint takes their place.
      checkpointedStep_ = options_.resumePath == options_.checkpointPath ? position_.step : 0;
    }
  }
}

// The reducer rebuilds its buckets once, after the first backward. Where bucket boundaries lie decides the order of
// the ring's additions, so a resumed run must have rebuilt before its first step: one backward, gradients dropped.
void Run::repeatBucketRebuild() {
  StepMetrics unused;
  const int64_t last = batches_.microBatches(0) - 1;
  forward(0, last, unused);
  backward(0, last, unused);
  optimizer_->clearGradients();
}

void Run::forward(int64_t step, int64_t micro, StepMetrics& metrics) {
  const auto batch = batches_.of(step, micro);
  if (options_.dropout > 0) {
    at::manual_seed(microBatchSeed(options_.seed, environment_.rank, step * options_.accumulate + micro));
  }
  const auto start = Clock::now();
  parallelism_->beforeForward(/*synchronise=*/micro + 1 == batches_.microBatches(step));
  losses_[micro] = model_.loss(batch.ids, batch.targets, options_.dropout);
  const auto done = Clock::now();
  tracer_.addForward(metrics.step, micro, start, done);
  metrics.forwardSeconds += secondsBetween(start, done);
}

void Run::backward(int64_t step, int64_t micro, StepMetrics& metrics) {
  const bool synchronise = micro + 1 == batches_.microBatches(step);
  const auto start = Clock::now();
  const auto loss = losses_.extract(micro).mapped();
  parallelism_->beforeBackward(synchronise);
  if (communicator_ && synchronise) {
    communicator_->beginWindow(static_cast<uint64_t>(metrics.step), gradientBytes_);
  }
  const auto [ranks, micros] = batches_.weightOf(step, micro);
  const auto share = ranks == 1 ? loss : loss * ranks;
  optimizer_->scaled(micros == 1 ? share : share / micros).backward();
  const auto done = Clock::now();
  if (communicator_ && synchronise) {
    const auto window = communicator_->endWindow();
    metrics.buckets = window.buckets;
    metrics.gradientBytes = window.bytes;
    metrics.allReduceSeconds = secondsBetween(window.firstHandedOver, window.lastDone);
    metrics.exposedSeconds = secondsBetween(window.lastHandedOver, window.lastDone);
    tracer_.addWindow(metrics.step, window, done);
  }
  tracer_.addBackward(metrics.step, micro, start, done);
  metrics.backwardSeconds += secondsBetween(start, done);
  const double value = loss.item<double>();
  metrics.loss += value / micros;
  metrics.weightedLoss += value * ranks / micros;
}

StepMetrics Run::trainStep(int64_t step) {
  StepMetrics metrics;
  metrics.step = step + 1;
  metrics.epoch = step / batches_.stepsPerEpoch();
  const auto before = readBytes();
  parallelism_->beginStep(step);
  resetPeakTensorBytes();
  elastic_.logSamples(metrics.step, metrics.epoch, [&] { return batches_.samplesOf(step); });
  const auto start = Clock::now();
  for (const auto& [kind, micro] : parallelism_->planPasses(batches_.microBatches(step))) {
    kind == Pass::Kind::kForward ? forward(step, micro, metrics) : backward(step, micro, metrics);
  }
  parallelism_->completeBackward(metrics);
  tracer_.addWaits(metrics.step, parallelism_->takeWaits());
  // What is left of backward is computation, plus the reducer's copying of gradients into and out of buckets.
  metrics.backwardSeconds -= metrics.exposedSeconds;
  const auto backwardDone = Clock::now();
  parallelism_->setLearningRate(schedule_.rateOf(step));
  schedule_.addMetrics(step, metrics.more);
  if (options_.clipNorm > 0) {
    metrics.gradientNorm = parallelism_->clipGradients(options_.clipNorm);
  }
  metrics.memory = heldMemory(options_, *parallelism_, model_);
  parallelism_->updateParameters();
  optimizer_->addMetrics(metrics.more);
  parallelism_->addMetrics(metrics.more);
  const auto optimizerDone = Clock::now();
  if (communicator_ && options_.barrier) {
    communicator_->barrier();
  }
  const auto end = Clock::now();
  addPeak(metrics.memory);
  tracer_.addStep(metrics.step, start, backwardDone, optimizerDone, end, communicator_ && options_.barrier);
  metrics.optimizerSeconds = secondsBetween(backwardDone, optimizerDone);
  metrics.barrierSeconds = secondsBetween(optimizerDone, end);
  metrics.stepSeconds = secondsBetween(start, end);
  metrics.tokens = batches_.targetsIn(step);
  const int64_t positions = batches_.samplesIn(step) * options_.seqLength;
  metrics.flops = model_.trainingFlops(positions, options_.seqLength);
  if (options_.isPadded()) {
    metrics.more["padding"] = 100 * (1 - static_cast<double>(metrics.tokens) / static_cast<double>(positions));
  }
  metrics.peakFlopsPerSecond = peakFlopsPerSecond_;
  metrics.bytesSource = communicator_ ? communicator_->byteCounter().source() : "none";
  if (const auto after = readBytes(); before && after) {
    metrics.bytesSent = after->sent - before->sent;
    metrics.bytesReceived = after->received - before->received;
  }
  return metrics;
}

void Run::verifyRanks(StepMetrics& metrics) {
  metrics.digest = parameterDigest(model_, *parallelism_, optimizer_->masters());
  if (!communicator_ || !parallelism_->ranksAgree()) {
    return;
  }
  const auto digests = communicator_->gather(metrics.digest);
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      throw ProgramError(fmt::format("after step {} rank {} holds other parameters than rank 0 ({} and {})",
                                     metrics.step, rank, digests[rank], digests[0]));
    }
  }
}

// What is wrong with its loss, as divergence(): the same at all ranks.
std::string Run::evaluate(int64_t step) {
  evaluated_ = evaluation_.run(model_, parallelism_->hasLoss(), communicator_ ? &*communicator_ : nullptr);
  nlohmann::json record = evaluated_;
  record["event"] = "evaluation";
  record["step"] = step;
  writeRecord(std::move(record));
  const auto loss = evaluated_["eval_loss"].get<double>();
  return std::isfinite(loss) ? ""
                             : fmt::format("step {}: the loss on samples not trained on is {}", step, textOf(loss));
}

// Records are written then, and checkpoints of earlier steps stay.
void Run::endIfDiverged(const std::string& reason) const {
  if (!reason.empty()) {
    throw LastingError(reason + ": the run has diverged; lower --lr, or set --clip-norm");
  }
}

void Run::maybeCheckpoint(int64_t step) {
  const bool isDue = options_.checkpointEvery > 0 && (step + 1) % options_.checkpointEvery == 0;
  if (options_.checkpointPath.empty() || (!isDue && step + 1 != lastStep_)) {
    return;
  }
  parallelism_->beforeCheckpoint();
  const auto state = parallelism_->rankState();
  const RankStateFile file(options_.checkpointPath, step + 1, environment_.rank);
  if (!state.empty()) {
    if (run_ == 0) {
      const auto drawn = at::tensor({randomNumber()}, at::kLong);
      DataParallel::broadcast(*communicator_, {drawn});
      run_ = drawn.item<int64_t>();
    }
    file.save(state, run_);
    communicator_->barrier();  // all of them are there before the checkpoint that needs them
  }
  if (isRoot()) {
    elastic_.keepPrevious();
  }
  saveCheckpoint(isRoot() ? options_.checkpointPath : "", weights_, *parallelism_, {.step = step + 1, .run = run_},
                 trajectory_, moreState());
  if (!state.empty()) {
    communicator_->barrier();
    RankStateFile(options_.checkpointPath, checkpointedStep_, environment_.rank).remove();
    checkpointedStep_ = step + 1;
  }
}

// Elastic runs repeat steps: the generation tells their records apart.
void Run::writeRecord(nlohmann::json record) {
  if (!metrics_) {
    return;
  }
  if (options_.elastic.isUsed()) {
    record["generation"] = elastic_.generation();
  }
  metrics_->writeLine(record.dump());
}

void Run::writeStart() {
  writeRecord({{"event", "start"},
               {"rank", environment_.rank},
               {"world_size", environment_.worldSize},
               {"transport", communicator_ ? communicator_->transport() : "none"},
               {"options", trajectory_},
               {"parameters", model_.parameterCount()},
               {"steps", lastStep_},
               {"first_step", position_.step + 1},
               {"steps_per_epoch", batches_.stepsPerEpoch()},
               {"samples", batches_.sampleCount()},
               {"barrier", options_.barrier},
               {"threads", at::get_num_threads()},
               {"cpu", processorName()},
               {"blas", blasName()},
               {"cores", std::thread::hardware_concurrency()},
               {"commit", commitName()}});
}

void Run::writeSummary(double wallSeconds) {
  const std::string digest = parameterDigest(model_, *parallelism_, optimizer_->masters());
  nlohmann::json record = summary_.toJson();
  record["event"] = "summary";
  record["sha256"] = digest;
  record["rank"] = environment_.rank;
  record["world_size"] = environment_.worldSize;
  record["transport"] = communicator_ ? communicator_->transport() : "none";
  record["commit"] = commitName();
  record["cpu"] = processorName();
  record["blas"] = blasName();
  record["threads"] = at::get_num_threads();
  record["wall_s"] = wallSeconds;
  record["peak_memory_mb"] = peakMemoryMb();
  optimizer_->addMetrics(record);
  parallelism_->addSummary(record);
  target_.addSummary(record);
  record.update(evaluated_);
  if (const StepMarkers* markers = communicator_ ? communicator_->stepMarkers() : nullptr) {
    record["step_markers"] = markers->toJson();
    if (markers->failed() > 0) {
      complain("ddp_train", fmt::format("{} step markers were not sent to {}; the last reason: {}", markers->failed(),
                                        options_.stepMarkers, markers->lastError()));
    }
  }
  if (isRoot() && !target_.shortfall().empty()) {
    complain("ddp_train", target_.shortfall());
  }
  writeRecord(record);
  if (metrics_) {
    metrics_->close();
  }
  if (isRoot() && options_.metricsPath != "-" && lastStep_ > position_.step) {
    const auto& median = record["median"];
    fmt::print(
        "{} steps over {}, {} ranks: loss {:.4f} to {:.4f}, t_step {:.3f} s, t_ar {:.3f} s ({:.3f} s exposed), "
        "{:.0f} tokens/s (medians); sha256 {}\n",
        record["steps"].get<int64_t>(), record["transport"].get<std::string>(), environment_.worldSize,
        record["loss_first"].get<double>(), record["loss_last"].get<double>(), median["t_step_s"].get<double>(),
        median["t_ar_s"].get<double>(), median["t_ar_exposed_s"].get<double>(), median["tokens_per_s"].get<double>(),
        digest);
  }
  if (isRoot() && options_.metricsPath != "-" && !evaluated_.empty()) {
    fmt::print("on {} samples not trained on: loss {:.4f}, perplexity {:.2f}\n",
               evaluated_["eval_samples"].get<int64_t>(), evaluated_["eval_loss"].get<double>(),
               evaluated_["eval_perplexity"].get<double>());
  }
}

void Run::execute() {
  loadState();
  elastic_.openLog();
  connect();
  if (!options_.resumePath.empty() || options_.elastic.isUsed()) {
    resume();
  }
  const std::string path = metricsPathOf(options_, environment_.rank);
  if (!path.empty()) {  // an earlier run's results are replaced once this one can begin
    metrics_.emplace(path, elastic_.continues() ? LineWriter::Existing::kAppendTo : LineWriter::Existing::kReplace);
  }
  peakFlopsPerSecond_ = peakFlopsPerSecond(options_.tracing, model_, options_.batchSize * options_.seqLength,
                                           communicator_ ? &*communicator_ : nullptr);
  writeStart();
  if (const auto restart = elastic_.restartRecord(position_.step)) {
    writeRecord(*restart);
  }
  const auto start = Clock::now();
  std::string fault;
  {
    ProgressBar bar(options_.progress && isRoot(), position_.step + 1, lastStep_);
    for (int64_t step = position_.step; step < lastStep_; ++step) {
      auto metrics = trainStep(step);
      if (communicator_ && options_.barrier) {
        metrics.meanLoss = communicator_->meanOverRanks(metrics.weightedLoss);
      }
      if (options_.verifyRanks) {
        verifyRanks(metrics);
      }
      lastStep_ = target_.isReachedBy(metrics) ? step + 1 : lastStep_;
      summary_.add(metrics);
      writeRecord(toJson(metrics));
      bar.show(metrics);
      fault = divergence(metrics, optimizer_->stepsLeftOut());
      if (fault.empty() && evaluation_.isDueAfter(step + 1) && step + 1 < lastStep_) {
        fault = evaluate(step + 1);
      }
      if (!fault.empty()) {
        break;
      }
      maybeCheckpoint(step);
      elastic_.stepDone(step + 1);
    }
  }
  const double wallSeconds = secondsBetween(start, Clock::now());
  if (fault.empty() || options_.barrier || !communicator_) {  // else this rank alone may know of it
    tracer_.write();
  }
  endIfDiverged(fault);
  if (communicator_) {
    communicator_->requireBytesOverTransport();
  }
  parallelism_->finish();
  if (!options_.saveModelPath.empty()) {
    saveWeights(isRoot() ? options_.saveModelPath : "", model_, *parallelism_);
  }
  if (evaluation_.isUsed()) {  // after the model is saved: what has no loss on other samples may still be wanted
    endIfDiverged(evaluate(lastStep_));
  }
  writeSummary(wallSeconds);
  if (communicator_) {
    communicator_->barrier();  // nobody leaves while another rank still needs its store or its answers
  }
}

}  // namespace

void checkInput(const Options& options) {
  const int ranks = options.spawn > 0 ? options.spawn : options.elastic.maxRanks;
  const ModelShare share(options.modelParallel.method, 0, ranks, modelConfig(options));
  checkMemory(options, ranks, ranks);
  const int dataRanks = options.modelParallel.dataRanks(ranks);
  const Batches batches(options, 0, dataRanks);
  const Evaluation evaluation(options, batches, 0, dataRanks);
  for (const std::string& path : {options.weightsPath, options.resumePath}) {
    if (!path.empty()) {
      const SafetensorsFile file(path);
    }
  }
  for (const std::string& path : {options.checkpointPath, options.saveModelPath}) {
    if (!path.empty()) {
      checkReplaceable(path);
    }
  }
  if (options.ddp) {
    prepareTransport(options);
  }
  if (!options.stepMarkers.empty()) {
    const StepMarkers markers(options.stepMarkers);
  }
}

void train(const Options& options, const RankEnvironment& environment) {
  if (!options.ddp && environment.worldSize > 1) {
    throw UsageError(fmt::format("--no-ddp is for a single rank, not for {}", environment.worldSize));
  }
  prepareMemory(options, environment.worldSize);
  Run(options, environment).execute();
}

}  // namespace gloo_bypass::trainer
