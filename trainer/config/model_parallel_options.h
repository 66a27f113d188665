// How ranks share one model's computation: the flag. Pure; no libtorch.
//
// No part of trajectoryOptions(): the samples and sums are one rank's, so that a checkpoint continues with any of them.
// Ranks compare the method besides.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

struct Options;

enum class ModelParallelism {
  kNone,    // each rank has the model to itself
  kTensor,  // a part of each block (Shoeybi et al. 2019)
  kGpipe,   // some of the blocks; all forwards, then all backwards (Huang et al. 2019)
  k1F1B,    // some of the blocks; a backward as soon as it can be (Narayanan et al. 2019)
};

struct ModelParallelOptions {
  ModelParallelism method = ModelParallelism::kNone;
  bool isUsed() const { return method != ModelParallelism::kNone; }
  bool isPipeline() const { return method == ModelParallelism::kGpipe || method == ModelParallelism::k1F1B; }
  // How many share of the data the ranks are: all of them, or one together.
  int dataRanks(int worldSize) const { return isUsed() ? 1 : worldSize; }
  int dataRank(int rank) const { return isUsed() ? 0 : rank; }
};

void addModelParallelOptions(CLI::App& app, ModelParallelOptions& options);

// "tensor", as the flag has it.
std::string nameOf(ModelParallelism method);

// What is wrong with them beside the other options; empty if nothing.
std::string crossCheck(const ModelParallelOptions& o, const Options& options);

}  // namespace gloo_bypass::trainer
