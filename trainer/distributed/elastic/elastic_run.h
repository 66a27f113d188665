// A rank's part in an elastic run: it finds the checkpoint to start from, reports its progress to the launcher, and
// logs restarts and samples.
//
// The launcher (elastic_launcher.h) passes two variables: DDP_TRAIN_RESTART describes the failure before, and
// DDP_TRAIN_PROGRESS_FD is a file in memory. Rank 0 keeps its progress there, so that the launcher can read it after
// rank 0 was killed. One thread; without --elastic and --log-samples every method does nothing. Durations are of
// CLOCK_MONOTONIC, which all processes of a machine share.
//
// CHECKPOINT.starts has a line for each start of the group since the run began; the generation is how many there were
// before. No launcher can tell: each of torchrun's agents counts its own restarts, and none where ranks join.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/config/options.h"
#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {

// What rank 0 leaves behind after each step.
struct ElasticProgress {
  int64_t step = 0;        // optimiser steps done
  double doneSeconds = 0;  // when the last one was, on the monotonic clock; 0: none yet
};
ElasticProgress readProgress(int descriptor);
// A rank tells the launcher, if it is ours, why it ends where a restart would meet the same fault; the launcher reads
// it, empty if no rank did.
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
  // Rank 0 calls it once before the ranks meet: adds this start to CHECKPOINT.starts. Throws ProgramError.
  void countStart();
  // --log-samples: rank 0 empties it before the ranks meet, the others write after that. Throws UsageError.
  void openLog();
  int64_t generation() const { return generation_; }
  // What rank 0 starts from. Throws UsageError where this rank has a checkpoint of more steps: it is not rank 0's file.
  void follow(int64_t step, int64_t generation);

  // Once the group is connected: the record of the restart, if this is one. `step`: steps done.
  std::optional<nlohmann::json> restartRecord(int64_t step) const;
  // Call it before a step's first collective, so that the samples of every step in a checkpoint are logged. `step`
  // counts from 1.
  void logSamples(int64_t step, int64_t epoch, const std::function<std::vector<int64_t>()>& samples);
  void stepDone(int64_t step) const;
  // Keeps the checkpoint that is about to be replaced as PATH.previous. Throws ProgramError.
  void keepPrevious() const;

 private:
  bool elastic_;
  std::string checkpointPath_, samplesPath_, startingPoint_;
  int rank_, worldSize_, progress_ = -1;
  int64_t generation_ = 0;
  nlohmann::json before_;  // the failure, from our launcher; null: another launcher, or no failure
  std::optional<LineWriter> samples_;
};

}  // namespace gloo_bypass::trainer
