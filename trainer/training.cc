#include "trainer/training.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/checkpoint/checkpoints.h"
#include "trainer/config/trajectory.h"
#include "trainer/data/batches.h"
#include "trainer/distributed/connect.h"
#include "trainer/metrics/divergence.h"
#include "trainer/metrics/evaluation/evaluation.h"
#include "trainer/metrics/run_log.h"
#include "trainer/metrics/target_loss.h"
#include "trainer/metrics/tracing/peak_flops.h"
#include "trainer/metrics/tracing/tracer.h"
#include "trainer/model/blas.h"
#include "trainer/model/tensor_memory.h"
#include "trainer/optimizer/schedule.h"

namespace gloo_bypass::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// What one rank does from its start to its end.
class Trainer {
 public:
  Trainer(const Options& options, const RankEnvironment& environment)
      : options_(options),
        environment_(environment),
        elastic_(options.elastic, options.checkpointPath, options.resumePath, environment.rank, environment.worldSize),
        batches_(options, environment.rank, environment.worldSize),
        lastStep_(options.steps > 0 ? options.steps : options.epochs * batches_.stepsPerEpoch()),
        schedule_(options.schedule, options.learningRate, lastStep_, batches_.samplesOfAnUpdate()),
        target_(options.targetLoss),
        evaluation_(options, batches_),
        held_(options, environment),
        trajectory_(trajectoryOf(options, batches_.runSize(lastStep_))),
        checkpoints_(options, environment, elastic_, held_,
                     {{"loss_scaler", held_.optimizer->scalerState()},
                      {"adamw_steps", held_.optimizer->stepsOfParameters()},
                      {target_.stateName(), target_.state()}},
                     trajectory_),
        log_(options, environment.rank),
        tracer_(options, environment.rank) {}

  void run() {
    connect();
    resume();
    openLog();
    const auto start = Clock::now();
    const std::string fault = runSteps();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    if (fault.empty() || options_.barrier || communicator_->worldSize() == 1) {  // else this rank alone may have it
      tracer_.write();
    }
    requireNoDivergence(fault);
    finish(seconds.count());
  }

 private:
  void connect() {
    checkpoints_.load(lastStep_);
    if (target_.isReached() && !options_.elastic.isUsed()) {
      throw UsageError(fmt::format("{} has reached the loss of {} already, at step {}: lower --target-loss",
                                   options_.resumePath, options_.targetLoss.loss, checkpoints_.stepsDone()));
    }
    elastic_.openLog();
    auto ranks = connectRanks(options_, environment_,
                              agreement(options_, trajectory_, lastStep_, evaluation_.sampleCount()), held_);
    communicator_ = std::move(ranks.communicator);
    parallelism_ = std::move(ranks.parallelism);
    gradientBytes_ = parallelism_->synchronisedBytes(held_.model.parameters());
    tracer_.start(*communicator_, held_.model.parameters());
  }

  void resume() {
    if (!checkpoints_.resume(*communicator_, *parallelism_)) {
      return;
    }
    target_.resumed(communicator_->isRoot());
    if (target_.isReached()) {
      lastStep_ = checkpoints_.stepsDone();  // elastic: a rank was lost after its last step
    }
    // The reducer cuts its buckets anew after one of the first backwards, and they decide the order of the ring's
    // additions. So a resumed run must be as far: these backwards, gradients dropped.
    for (int64_t i = 0; i < std::min(checkpoints_.stepsDone(), parallelism_->learningBackwards()); ++i) {
      StepMetrics unused;
      const int64_t last = batches_.microBatches(0) - 1;
      forward(0, last, unused);
      backward(0, last, unused);
      held_.optimizer->clearGradients();
    }
    checkpoints_.loadRankState(*parallelism_);
  }

  void openLog() {
    log_.open(elastic_.continues(), options_.elastic.isUsed() ? std::optional(elastic_.generation()) : std::nullopt,
              {{"rank", environment_.rank},
               {"world_size", environment_.worldSize},
               {"transport", communicator_->transport()},
               {"collectives", communicator_->collectives()},
               {"threads", at::get_num_threads()},
               {"blas", blasName()}});
    peakFlopsPerSecond_ =
        peakFlopsPerSecond(options_.tracing, held_.model, options_.batchSize * options_.seqLength, *communicator_);
    log_.writeStart({{"options", trajectory_},
                     {"parameters", held_.model.parameterCount()},
                     {"steps", lastStep_},
                     {"first_step", checkpoints_.stepsDone() + 1},
                     {"steps_per_epoch", batches_.stepsPerEpoch()},
                     {"samples", batches_.sampleCount()},
                     {"barrier", options_.barrier}});
    if (const auto restart = elastic_.restartRecord(checkpoints_.stepsDone())) {
      log_.write("restart", *restart);
    }
  }

  // Why the run has diverged; empty: it has not.
  std::string runSteps() {
    log_.beginProgress(checkpoints_.stepsDone() + 1, lastStep_);
    std::string fault;
    for (int64_t step = checkpoints_.stepsDone(); step < lastStep_; ++step) {
      const StepMetrics metrics = trainStep(step);
      lastStep_ = target_.isReachedBy(metrics) ? step + 1 : lastStep_;
      log_.writeStep(metrics);
      fault = divergenceAt(metrics, held_.optimizer->stepsLeftOut());
      if (fault.empty() && evaluation_.isDueAfter(step + 1) && step + 1 < lastStep_) {
        fault = evaluate(step + 1);
      }
      if (!fault.empty()) {
        break;
      }
      if (checkpoints_.isDueAfter(step + 1, lastStep_)) {
        checkpoints_.save(step + 1, *communicator_, *parallelism_);
      }
      elastic_.stepDone(step + 1);
    }
    log_.endProgress();
    return fault;
  }

  StepMetrics trainStep(int64_t step) {
    StepMetrics metrics;
    metrics.step = step + 1;
    metrics.epoch = step / batches_.stepsPerEpoch();
    const auto bytesBefore = communicator_->byteCounts();
    parallelism_->beginStep(step);
    resetPeakTensorBytes();
    elastic_.logSamples(metrics.step, metrics.epoch, [&] { return batches_.samplesOf(step); });

    const auto start = Clock::now();
    for (const auto& [kind, micro] : parallelism_->planPasses(batches_.microBatches(step))) {
      kind == Pass::Kind::kForward ? forward(step, micro, metrics) : backward(step, micro, metrics);
    }
    parallelism_->completeBackward(metrics);
    tracer_.addWaits(metrics.step, parallelism_->takeWaits());
    const auto backwardDone = Clock::now();
    updateParameters(step, metrics);
    const auto optimizerDone = Clock::now();
    if (options_.endsStepsTogether()) {
      communicator_->barrier();
    }
    const auto end = Clock::now();
    tracer_.addStep(metrics.step, start, backwardDone, optimizerDone, end, options_.endsStepsTogether());
    metrics.setTimes(start, backwardDone, optimizerDone, end);
    metrics.setBytes(communicator_->byteSource(), bytesBefore, communicator_->byteCounts());
    metrics.setPeak(peakTensorBytes());
    batches_.addMetrics(step, metrics);
    metrics.flops = held_.model.trainingFlops(batches_.positionsIn(step), options_.seqLength);
    metrics.peakFlopsPerSecond = peakFlopsPerSecond_;
    if (metrics.peakFlopsPerSecond && options_.averaging.isAsynchronous()) {
      *metrics.peakFlopsPerSecond /= communicator_->worldSize();  // its step has this rank's samples only
    }
    if (options_.endsStepsTogether()) {
      metrics.meanLoss = communicator_->meanOverRanks(metrics.weightedLoss);
    }
    if (options_.verifyRanks) {
      metrics.digest = digest();
      requireSameParameters(*communicator_, *parallelism_, metrics.digest, metrics.step);
    }
    return metrics;
  }

  bool isLast(int64_t step, int64_t micro) const { return micro + 1 == batches_.microBatches(step); }

  void forward(int64_t step, int64_t micro, StepMetrics& metrics) {
    const auto batch = batches_.of(step, micro);
    held_.seedForward(dropoutSeed(options_.seed, environment_.rank, step * options_.accumulate + micro));
    const auto start = Clock::now();
    parallelism_->beforeForward(/*synchronise=*/isLast(step, micro));
    losses_[micro] = held_.model.loss(batch.ids, batch.targets, options_.dropout);
    const auto done = Clock::now();
    tracer_.addForward(metrics.step, micro, start, done);
    metrics.forwardSeconds += std::chrono::duration<double>(done - start).count();
  }

  void backward(int64_t step, int64_t micro, StepMetrics& metrics) {
    const auto start = Clock::now();
    const auto loss = losses_.extract(micro).mapped();
    parallelism_->beforeBackward(/*synchronise=*/isLast(step, micro), loss);
    held_.optimizer->beginBackward(isLast(step, micro));
    if (isLast(step, micro)) {
      communicator_->beginWindow(static_cast<uint64_t>(metrics.step), gradientBytes_);
    }
    const auto [ranks, micros, ownMicros] = batches_.weightOf(step, micro);
    const auto share = ranks == 1 ? loss : loss * ranks;
    held_.optimizer->scaled(micros == 1 ? share : share / micros).backward();
    const auto done = Clock::now();
    if (isLast(step, micro)) {
      const auto window = communicator_->endWindow();
      window.addTo(metrics);
      tracer_.addWindow(metrics.step, window, done);
    }
    tracer_.addBackward(metrics.step, micro, start, done);
    metrics.backwardSeconds += std::chrono::duration<double>(done - start).count();
    if (ranks > 0) {
      const double value = loss.item<double>();
      metrics.loss = metrics.loss.value_or(0) + value / ownMicros;
      metrics.weightedLoss += value * ranks / micros;
    }
  }

  void updateParameters(int64_t step, StepMetrics& metrics) {
    parallelism_->setLearningRate(schedule_.rateOf(step));
    schedule_.addMetrics(step, metrics.ofMethods);
    if (options_.clipNorm > 0) {
      metrics.gradientNorm = parallelism_->clipGradients(options_.clipNorm);
    }
    if (options_.sharding.isUsed() || options_.memoryMetrics) {
      metrics.memory = {.held = parallelism_->heldBytes(held_.model.parameters()), .peakOfTensors = std::nullopt};
    }
    parallelism_->updateParameters();
    held_.optimizer->addMetrics(metrics.ofMethods);
    parallelism_->addMetrics(metrics.ofMethods);
  }

  // Why the run has diverged, the same at all ranks; empty: it has not.
  std::string evaluate(int64_t step) {
    const auto result = evaluation_.run(held_.model, parallelism_->hasLoss(), *communicator_);
    log_.writeEvaluation(step, result);
    return divergenceAt(step, result["eval_loss"].get<double>());
  }

  std::string digest() { return parameterDigest(held_.model, *parallelism_, options_.precision.hasMasters()); }

  void finish(double seconds) {
    communicator_->requireBytesOverTransport();
    parallelism_->finish();
    if (!options_.saveModelPath.empty()) {
      saveWeights(communicator_->isRoot() ? options_.saveModelPath : "", held_.model, *parallelism_);
    }
    if (evaluation_.isUsed()) {  // after the model is saved: what has no loss on other samples may still be wanted
      requireNoDivergence(evaluate(lastStep_));
    }
    nlohmann::json summary{{"sha256", digest()}, {"wall_s", seconds}, {"peak_memory_mb", peakMemoryMb()}};
    held_.optimizer->addMetrics(summary);
    parallelism_->addSummary(summary);
    target_.addSummary(summary);
    communicator_->addSummary(summary);
    if (communicator_->isRoot() && !target_.shortfall().empty()) {
      complain("ddp_train", target_.shortfall());
    }
    log_.writeSummary(summary);
    communicator_->barrier();  // nobody leaves while another rank still needs its store or its answers
  }

  const Options& options_;
  const RankEnvironment& environment_;
  ElasticRun elastic_;
  Batches batches_;
  int64_t lastStep_;
  Schedule schedule_;
  TargetLoss target_;
  Evaluation evaluation_;
  HeldModel held_;
  const nlohmann::json trajectory_;
  Checkpoints checkpoints_;
  RunLog log_;
  Tracer tracer_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Parallelism> parallelism_;
  int64_t gradientBytes_ = 0;             // of a step, as the process group gets them
  std::map<int64_t, at::Tensor> losses_;  // by micro-batch: between its forward and its backward
  std::optional<double> peakFlopsPerSecond_;
};

}  // namespace

void train(const Options& options, const RankEnvironment& environment) { Trainer(options, environment).run(); }

}  // namespace gloo_bypass::trainer
