// The batches of a run: which samples a rank trains on at each step, as tensors.
//
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/corpus.h"
#include "trainer/options.h"
#include "trainer/sampler.h"

namespace gloo_bypass::trainer {

struct Batch {
  at::Tensor ids, targets; // (B, T), int64, CPU
};

// Reads and tokenises a text, or the one that the options name, of which the first maxSamples samples (0: all). Throws UsageError for
// one that this model cannot be trained on.
Corpus loadText(const Options& options, const std::string& path, int64_t maxSamples);
Corpus loadCorpus(const Options& options);

// Samples by number, as tensors.
Batch batchOf(const Corpus& corpus, const std::vector<int64_t>& indices);

class Batches {
 public:
  // Keeps a reference to the options. Throws UsageError where the samples do not fill a step.
  Batches(const Options& options, int rank, int worldSize);

  // The whole text; the first sampleCount() samples are trained on, the rest is held out.
  const Corpus& corpus() const { return corpus_; }
  int64_t sampleCount() const { return sampleCount_; }
  int64_t stepsPerEpoch() const { return stepsPerEpoch_; }
  // Samples of a micro-batch over all ranks.
  int64_t globalBatch() const { return globalBatch_; }
  // What this rank's mean loss counts in the mean over ranks; 1 where all have as many samples.
  double weight() const { return weight_; }
  // Of all micro-batches of step `step`, as numbers of samples.
  std::vector<int64_t> samplesOf(int64_t step);
  // Of micro-batch `micro` of optimiser step `step`, both from 0.
  Batch of(int64_t step, int64_t micro);

 private:
  const Options& options_;
  Corpus corpus_;
  int64_t sampleCount_;
  int64_t globalBatch_;
  DistributedSampler sampler_;
  int64_t stepsPerEpoch_;
  double weight_;
};

} // namespace gloo_bypass::trainer
