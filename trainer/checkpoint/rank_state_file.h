// The files beside a checkpoint, CHECKPOINT.stepN.rankR, in which each rank keeps its RankState.
//
// Each rank writes and reads its own: through rank 0 they would be as many times the model's size as there are ranks.
// A rank writes its file before the checkpoint is replaced and removes the older one after it, so that a run killed at
// any moment leaves a checkpoint with its files. A later run to the same path that is killed between the two would
// leave its own files beside the other run's checkpoint: both name the run that wrote them. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/distributed/rank_state.h"

namespace gloo_bypass::trainer {

class RankStateFile {
 public:
  RankStateFile(std::string checkpointPath, int64_t step, int rank);
  const std::string& path() const { return path_; }
  // `run`: TrainingPosition's.
  void save(const RankState& state, int64_t run) const;
  // Throws UsageError for a file that is missing, of another run, step or rank, does not hold this state, or holds a
  // value that is not finite.
  void load(const RankState& state, int64_t run) const;
  void remove() const;  // if it is there

 private:
  std::string path_;
  int64_t step_;
  int rank_;
};

// Removes what earlier runs left beside the checkpoint of a run that begins: unfinished files, and this rank's files of
// the checkpoint's own run at other steps. Files of other runs may belong to a checkpoint that was moved away: a line
// on stderr names them. Rank 0 does this also for ranks that this run does not have.
void tidyRankFiles(const std::string& checkpointPath, int rank, int worldSize);

}  // namespace gloo_bypass::trainer
