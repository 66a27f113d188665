// The checkpoints of a run: where it starts from, and what it writes. One per rank; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/weights.h"
#include "trainer/config/options.h"
#include "trainer/distributed/communicator.h"
#include "trainer/distributed/elastic/elastic_run.h"
#include "trainer/distributed/held_model.h"
#include "trainer/distributed/parallelism.h"
#include "trainer/distributed/rank_environment.h"

namespace gloo_bypass::trainer {

// Throws ProgramError where the options name a file to write that cannot be replaced.
void checkOutputs(const Options& options);

class Checkpoints {
 public:
  // References must outlive it. `values`: what a checkpoint holds besides the model. `trajectory`: the options that a
  // checkpoint must have been made under.
  Checkpoints(const Options& options, const RankEnvironment& environment, ElasticRun& elastic, HeldModel& held,
              std::vector<NamedValues> values, nlohmann::json trajectory);

  // Before the ranks meet. Checks the paths, and fills the weights and values at rank 0: from the checkpoint to go on
  // from, --weights, or random. Throws UsageError, also for a checkpoint of `lastStep` or more.
  void load(int64_t lastStep);
  // Once the ranks are connected: brings them to rank 0's step, moments and values. False: the run begins at step 0.
  bool resume(Communicator& communicator, Parallelism& parallelism);
  // What each rank kept for itself. After resume(), and after all that changes it before the first step.
  void loadRankState(const Parallelism& parallelism);
  // Optimiser steps done before this run.
  int64_t stepsDone() const { return position_.step; }

  bool isDueAfter(int64_t step, int64_t lastStep) const;
  // All ranks, after step `step`, counted from 1. Throws ProgramError; what the path holds stays then.
  void save(int64_t step, Communicator& communicator, Parallelism& parallelism);

 private:
  bool resumes() const { return !options_.resumePath.empty() || options_.elastic.isUsed(); }

  const Options& options_;
  const int rank_, worldSize_;
  ElasticRun& elastic_;
  HeldModel& held_;
  std::vector<NamedValues> values_;
  const nlohmann::json trajectory_;
  std::optional<CheckpointFile> file_;  // rank 0's, until resumed
  TrainingPosition position_;           // of the checkpoint to go on from
  int64_t runId_ = 0;                   // TrainingPosition's, of this run; 0: not agreed yet
  int64_t rankStateStep_ = 0;           // of the files that the next ones replace
};

}  // namespace gloo_bypass::trainer
