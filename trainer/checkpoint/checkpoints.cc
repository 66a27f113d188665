#include "trainer/checkpoint/checkpoints.h"

#include <filesystem>
#include <functional>
#include <random>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/checkpoint/rank_state_file.h"
#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {
namespace {

// At least 1.
int64_t randomNumber() {
  std::random_device entropy;
  return std::uniform_int_distribution<int64_t>(1)(entropy);
}

}  // namespace

void checkOutputs(const Options& options) {
  struct Given {
    const char* flag;
    const std::string& path;
  };
  const Given outputs[] = {{"--checkpoint", options.checkpointPath},
                           {"--save-model", options.saveModelPath},
                           {"--metrics", options.metricsPath},
                           {"--trace", options.tracing.tracePath},
                           {"--log-samples", options.elastic.samplesPath}};
  const auto areOneFile = [](const std::string& a, const std::string& b) {
    std::error_code unknown;  // a path that cannot be followed is refused where it is opened
    if (a == "-" || (std::filesystem::exists(a, unknown) && !std::filesystem::is_regular_file(a, unknown))) {
      return false;  // a pipe or a device takes what all write
    }
    const auto first = std::filesystem::weakly_canonical(a, unknown);
    return !first.empty() && first == std::filesystem::weakly_canonical(b, unknown);
  };
  const auto refuse = [](const Given& a, const Given& b) {
    throw UsageError(fmt::format("{} and {} are one file, {}: give each its own", a.flag, b.flag, a.path));
  };
  const Given inputs[] = {{"--resume", options.resumePath}, {"--weights", options.weightsPath},
                          {"--data", options.dataPath},     {"--eval-data", options.evaluation.dataPath},
                          {"--vocab", options.vocabPath},   {"--merges", options.mergesPath}};
  for (const Given& one : outputs) {
    for (const Given& input : inputs) {
      // A checkpoint may continue the one that the run begins with, a model the weights.
      const bool continues =
          (&one == &outputs[0] && &input == &inputs[0]) || (&one == &outputs[1] && &input == &inputs[1]);
      if (!continues && areOneFile(one.path, input.path)) {
        refuse(input, one);
      }
    }
    for (const Given* other = &one + 1; other != std::end(outputs); ++other) {
      if (areOneFile(one.path, other->path)) {
        refuse(one, *other);
      }
    }
  }
  for (const std::string& path : {options.checkpointPath, options.saveModelPath}) {
    if (!path.empty()) {
      checkReplaceable(path);
    }
  }
}

Checkpoints::Checkpoints(const Options& options, const RankEnvironment& environment, ElasticRun& elastic,
                         HeldModel& held, std::vector<NamedValues> values, nlohmann::json trajectory)
    : options_(options),
      rank_(environment.rank),
      worldSize_(environment.worldSize),
      elastic_(elastic),
      held_(held),
      values_(std::move(values)),
      trajectory_(std::move(trajectory)) {
  std::erase_if(values_, [](const NamedValues& each) { return each.values.empty(); });
}

void Checkpoints::load(int64_t lastStep) {
  if (rank_ == 0) {
    checkOutputs(options_);
  } else if (!options_.checkpointPath.empty() && options_.keepsRankState()) {
    checkReplaceable(options_.checkpointPath);
  }
  if (!options_.checkpointPath.empty()) {
    tidyRankFiles(options_.checkpointPath, rank_, worldSize_);
  }
  if (rank_ != 0) {
    return;  // rank 0's values arrive by broadcast
  }
  elastic_.countStart();
  Gpt2& weights = held_.initial();
  if (const std::string& path = elastic_.startingPoint(); !path.empty()) {
    position_ = file_.emplace(path, weights, trajectory_).position();
    // An elastic run may have lost a rank after its last step.
    if (position_.step > lastStep || (position_.step == lastStep && !options_.elastic.isUsed())) {
      throw UsageError(fmt::format("{} has done {} steps already, of {} asked for: raise --steps or --epochs", path,
                                   position_.step, lastStep));
    }
    file_->readInto(weights, values_);
  } else if (!options_.weightsPath.empty()) {
    loadWeights(weights, options_.weightsPath);
  } else {
    weights.initialize(options_.seed);
  }
  held_.optimizer->weightsChanged();
}

bool Checkpoints::resume(Communicator& communicator, Parallelism& parallelism) {
  if (!resumes()) {
    return false;
  }
  // Rank 0's: only it has read the file.
  const auto start = at::tensor({position_.step, elastic_.generation(), position_.runId}, at::kLong);
  communicator.broadcast({start});
  position_ = {.step = start[0].item<int64_t>(), .runId = start[2].item<int64_t>()};
  elastic_.follow(position_.step, start[1].item<int64_t>());
  if (position_.step == 0) {
    return false;  // elastic, without a checkpoint yet
  }
  parallelism.loadMoments(file_ ? std::bind_front(&CheckpointFile::read, &*file_) : MomentSource());
  file_.reset();
  if (!parallelism.holdsParts()) {
    communicator.broadcast(held_.optimizer->firstMoments());
    communicator.broadcast(held_.optimizer->secondMoments());
  }
  for (const auto& values : values_) {
    communicator.broadcast({tensorOf(values)});
  }
  held_.optimizer->setStepCount(position_.step);
  return true;
}

void Checkpoints::loadRankState(const Parallelism& parallelism) {
  if (const auto state = parallelism.rankState(); !state.empty()) {
    const RankStateFile resumed(options_.resumePath, position_.step, rank_);
    resumed.load(state, position_.runId);
    // One file may have two paths: a relative one, and an absolute one.
    std::error_code isAbsent;
    const RankStateFile replaced(options_.checkpointPath, position_.step, rank_);
    rankStateStep_ = std::filesystem::equivalent(resumed.path(), replaced.path(), isAbsent) ? position_.step : 0;
  }
}

bool Checkpoints::isDueAfter(int64_t step, int64_t lastStep) const {
  const bool isDue = options_.checkpointEvery > 0 && step % options_.checkpointEvery == 0;
  return !options_.checkpointPath.empty() && (isDue || step == lastStep);
}

void Checkpoints::save(int64_t step, Communicator& communicator, Parallelism& parallelism) {
  parallelism.beforeCheckpoint();
  const auto state = parallelism.rankState();
  if (!state.empty()) {
    if (runId_ == 0) {
      const auto drawn = at::tensor({randomNumber()}, at::kLong);
      communicator.broadcast({drawn});
      runId_ = drawn.item<int64_t>();
    }
    RankStateFile(options_.checkpointPath, step, rank_).save(state, runId_);
    communicator.barrier();  // all of them are there before the checkpoint that needs them
  }
  elastic_.keepPrevious();
  saveCheckpoint(rank_ == 0 ? options_.checkpointPath : "", held_.weights, parallelism, {.step = step, .runId = runId_},
                 trajectory_, values_);
  if (!state.empty()) {
    communicator.barrier();
    RankStateFile(options_.checkpointPath, rankStateStep_, rank_).remove();
    rankStateStep_ = step;
  }
}

}  // namespace gloo_bypass::trainer
