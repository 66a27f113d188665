// What each rank must keep for itself to go on exactly, such as what its compressed gradients have left out: files
// beside a checkpoint.
//
// A file a rank, CHECKPOINT.stepN.rankR, which that rank writes and reads: through rank 0 they would be as many times
// the model's size as there are ranks. They are written before the checkpoint is replaced and the older ones removed
// after it, so that a run that is killed at any moment leaves a checkpoint with its files. A later run to the same path
// that is killed between the two would leave its own files beside the other's checkpoint: both name the run that wrote
// them. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gloo_bypass::trainer {

// By name; contiguous tensors, aliases of what the owner uses.
using RankState = std::vector<std::pair<std::string, at::Tensor>>;

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

// What earlier runs have left beside the checkpoint of a run that begins: what nobody finished is removed, and so are
// this rank's files of the checkpoint's own run at other steps. Those of other runs may belong to a checkpoint that has
// been moved away: a line on stderr names them. Rank 0 looks after those of ranks that this run has not.
void tidyRankFiles(const std::string& checkpointPath, int rank, int worldSize);

}  // namespace gloo_bypass::trainer
