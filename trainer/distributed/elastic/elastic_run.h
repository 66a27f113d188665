// A rank's part in an elastic run: where it starts, what it tells the launcher, what it writes about restarts and
// samples.
//
// The launcher (elastic_launcher.h) passes DDP_TRAIN_RESTART, what it knows of the failure before, and
// DDP_TRAIN_PROGRESS_FD, a file in memory in which rank 0 keeps how far it came: it must be readable after rank 0 was
// killed. One thread; without --elastic and
// --log-samples every method does nothing. Durations are of CLOCK_MONOTONIC, which all processes of a machine share.
//
// CHECKPOINT.starts has a line for each start of the group since the run began; the generation is how many there were
// before. No launcher says it: torchrun's agents count restarts each for itself, and none where ranks join.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/config/elastic_options.h"
#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {

// What rank 0 leaves behind after each step.
struct ElasticProgress {
  int64_t step = 0;        // optimiser steps done
  double doneSeconds = 0;  // when the last one was, on the monotonic clock; 0: none yet
};
ElasticProgress readProgress(int descriptor);
// Says to the launcher, if it is ours, why this rank ends where a restart would meet the same again; and what a rank
// said, or nothing.
void tellLastingFault(const std::string& reason) noexcept;
std::string readLastingFault(int descriptor);
double monotonicSeconds();

// The checkpoint before it, while there is one.
std::string previousOf(const std::string& checkpointPath);

class ElasticRun {
 public:
  // Throws UsageError for a world size outside of the range. `resumePath`: --resume, for a run that has no checkpoint
  // of its own yet.
  ElasticRun(const ElasticOptions& options, const std::string& checkpointPath, const std::string& resumePath, int rank,
             int worldSize);

  // The file to continue from: --checkpoint if it is there and whole, else the one before it, else --resume; empty:
  // none.
  const std::string& startingPoint() const { return startingPoint_; }
  // Whether files that grow with the run are continued.
  bool continues() const { return before_.is_object() || !startingPoint_.empty(); }
  // Rank 0's, to be called once before the ranks meet: adds this start to CHECKPOINT.starts. Throws ProgramError.
  void countStart();
  // --log-samples: rank 0 empties it before the ranks meet, the others write after that. Throws UsageError.
  void openLog();
  int64_t generation() const { return generation_; }
  // What rank 0 starts from. Throws UsageError where this rank has a checkpoint of more steps: it is not rank 0's file.
  void follow(int64_t step, int64_t generation);

  // Once the group is connected: the record of the restart, if this is one. `step`: steps done.
  std::optional<nlohmann::json> restartRecord(int64_t step) const;
  // Before a step's first collective, so that no checkpoint has a step whose samples were not logged. `step` counts
  // from 1.
  void logSamples(int64_t step, int64_t epoch, const std::function<std::vector<int64_t>()>& samples);
  void stepDone(int64_t step) const;
  // Keeps the checkpoint that is about to be replaced as PATH.previous. Throws ProgramError.
  void keepPrevious() const;

 private:
  bool elastic_;
  std::string checkpointPath_, samplesPath_, startingPoint_;
  int rank_, worldSize_, progress_ = -1;
  int64_t generation_ = 0;
  nlohmann::json before_;  // the launcher's word on the failure; null: another launcher, or no failure
  std::optional<LineWriter> samples_;
};

}  // namespace gloo_bypass::trainer
