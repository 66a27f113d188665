// The batches of a run: which samples a rank trains on at each step, as tensors.
//
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/trajectory.h"
#include "trainer/data/corpus.h"
#include "trainer/data/sampler.h"
#include "trainer/metrics/metrics.h"

namespace gloo_bypass::trainer {

struct Batch {
  at::Tensor ids, targets;  // (B, T), int64, CPU
};

// Reads and tokenises the first maxSamples samples (0: all) of a text, or of the one that the options name. Throws
// UsageError for a text that this model cannot be trained on. byShard: see Corpus.
Corpus loadText(const Options& options, const std::string& path, int64_t maxSamples, bool byShard = false);
Corpus loadCorpus(const Options& options);

// What the ids of a text stand for, as vocabularyName() has it; path empty: of the training text.
std::string vocabularyOf(const Options& options, const std::string& path);

// Samples by number, as tensors.
Batch batchOf(const Corpus& corpus, const std::vector<int64_t>& indices);

class Batches {
 public:
  // Keeps a reference to the options. Ranks that share a model share its samples as well. Throws UsageError where the
  // samples do not fill a step.
  Batches(const Options& options, int rank, int worldSize);

  // The whole text; the first sampleCount() samples are trained on, the rest is held out. Of streamed shards so many,
  // another choice of them in each epoch.
  const Corpus& corpus() const { return corpus_; }
  int64_t sampleCount() const { return sampleCount_; }
  int64_t stepsPerEpoch() const { return stepsPerEpoch_; }
  // Among those that have samples of their own.
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  RunSize runSize(int64_t steps) const;
  // Samples of an optimiser step: of all ranks, unless each one's gradient is an update.
  int64_t samplesOfAnUpdate() const;
  // How many of them step `step` has: fewer than --accumulate only where it ends an epoch.
  int64_t microBatches(int64_t step) const;
  // Samples of a step over all ranks.
  int64_t samplesIn(int64_t step) const;
  // Positions in the samples that a step's time is of: all ranks', unless each one steps by itself.
  int64_t positionsIn(int64_t step);
  // Targets of a step over all ranks: samplesIn() x T, unless samples are padded.
  int64_t targetsIn(int64_t step);
  // The mean loss of this rank's targets in a micro-batch, times `ranks`, divided by `micros`, is its part of N times
  // the step's mean over all ranks' targets; divided by `ownMicros` it is its part of this rank's own mean, if `ranks`
  // is not 0. Where all have as many, `ranks` is 1 and the others are --accumulate.
  struct Weight {
    double ranks, micros, ownMicros;
  };
  Weight weightOf(int64_t step, int64_t micro);
  // What `metrics` has of a step's tokens.
  void addMetrics(int64_t step, StepMetrics& metrics);
  // Of all micro-batches of step `step`, as numbers of samples.
  std::vector<int64_t> samplesOf(int64_t step);
  // Of micro-batch `micro` of optimiser step `step`, both from 0. A rank that has no sample in it gets one of another
  // rank's all the same, of weight 0.
  Batch of(int64_t step, int64_t micro);

 private:
  int64_t targetsIn(const std::vector<int64_t>& samples) const;
  int64_t batchOfMicro(int64_t step, int64_t micro) const {
    return step % stepsPerEpoch_ * options_.accumulate + micro;
  }

  const Options& options_;
  int rank_, ranks_;
  Corpus corpus_;
  int64_t sampleCount_;
  int64_t globalBatch_;
  DistributedSampler sampler_;
  int64_t stepsPerEpoch_;
};

}  // namespace gloo_bypass::trainer
