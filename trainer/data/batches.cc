#include "trainer/data/batches.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tools/common/error.h"
#include "tools/common/program_path.h"
#include "trainer/data/shard_stream.h"
#include "trainer/data/token_shards.h"
#include "trainer/data/tokenizer.h"

namespace gloo_bypass::trainer {
namespace {

constexpr int64_t kIgnoredTarget = -100;  // of at::cross_entropy_loss

std::string dataPath(const Options& options) {
  return options.dataPath.empty() ? programFolder() + "/sample.txt" : options.dataPath;
}

// An elastic run keeps the batch of MAX ranks, so that neither the order of samples nor the learning rate depends on
// who is left.
int ranksOfBatch(const Options& options, int worldSize) {
  return options.elastic.isUsed() ? options.elastic.maxRanks : worldSize;
}

// The last samples of an epoch that do not fill a step are dropped, or make a smaller one.
int64_t stepsOfAnEpoch(const Options& options, int64_t samples, int worldSize) {
  const int64_t stepSamples = options.batchSize * worldSize * options.accumulate;
  if (options.tail != Tail::kDrop) {
    return (samples + stepSamples - 1) / stepSamples;
  }
  if (samples < stepSamples) {
    throw UsageError(fmt::format("{} samples do not fill one step of {} ranks x batch size {} x {} micro-batches",
                                 samples, worldSize, options.batchSize, options.accumulate));
  }
  return samples / stepSamples;
}

// An epoch's, of all ranks together.
int64_t trainedSamples(const Options& options, const Corpus& corpus, int worldSize) {
  if (options.streamShards) {
    return streamedSamples(corpus.samplesOfShards(), worldSize);
  }
  const int64_t samples = corpus.sampleCount();
  if (options.evaluation.samples >= samples) {
    throw UsageError(fmt::format("--eval-samples {}: the text has {} samples, none would be left to train on",
                                 options.evaluation.samples, samples));
  }
  return samples - options.evaluation.samples;
}

}  // namespace

Corpus loadText(const Options& options, const std::string& path, int64_t maxSamples, bool byShard) {
  const auto config = modelConfig(options);
  const auto check = [&](int64_t idBound, const std::string& of) {
    if (idBound > config.vocabulary) {
      throw UsageError(fmt::format("{} has token ids up to {}, the model {} takes {}: use a larger model{}", of,
                                   idBound - 1, options.model, config.vocabulary,
                                   options.vocabPath.empty() ? "" : ", or bytes (no --vocab)"));
    }
    if (options.seqLength > config.positions) {
      throw UsageError(fmt::format("--seq-length {}: the model {} has {} positions", options.seqLength, options.model,
                                   config.positions));
    }
  };
  if (std::filesystem::is_directory(path)) {
    if (options.passages != Passages::kNone) {
      throw UsageError(fmt::format("--passages: {} is tokenised already, and has no passages any more", path));
    }
    TokenShards shards(path);
    check(shards.idBound(), path);
    if (!options.vocabPath.empty() && vocabularyName(options.vocabPath, options.mergesPath) != shards.vocabulary()) {
      throw UsageError(fmt::format("{} was tokenised with another vocabulary than {} and {}", path, options.vocabPath,
                                   options.mergesPath));
    }
    return Corpus(path, std::move(shards), byShard, options.seqLength, maxSamples);
  }
  if (byShard) {
    throw UsageError(fmt::format("--stream-shards: {} is no folder of shards: make one with tokenise", path));
  }
  auto tokenizer =
      options.vocabPath.empty() ? Tokenizer::bytes() : Tokenizer::bytePairs(options.vocabPath, options.mergesPath);
  check(options.pack ? std::max<int64_t>(tokenizer.idBound(), tokenizer.endOfText() + 1) : tokenizer.idBound(),
        options.vocabPath.empty() ? fmt::format("{}, as bytes,", path) : options.vocabPath);
  if (options.pack) {
    return Corpus::packed(path, tokenizer, options.passages, options.seqLength, maxSamples);
  }
  if (options.passages != Passages::kNone) {
    return Corpus(path, tokenizer, options.passages, options.seqLength, maxSamples);
  }
  return Corpus(path, tokenizer, options.seqLength, maxSamples);
}

Corpus loadCorpus(const Options& options) {
  return loadText(options, dataPath(options), options.samples, options.streamShards);
}

std::string vocabularyOf(const Options& options, const std::string& path) {
  const std::string text = path.empty() ? dataPath(options) : path;
  return std::filesystem::is_directory(text) ? TokenShards(text).vocabulary()
                                             : vocabularyName(options.vocabPath, options.mergesPath);
}

Batch batchOf(const Corpus& corpus, const std::vector<int64_t>& indices) {
  const auto rows = static_cast<int64_t>(indices.size()), length = corpus.seqLength();
  Batch result{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong)};
  auto* ids = result.ids.data_ptr<int64_t>();
  auto* targets = result.targets.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const auto tokens = corpus.sample(index);
    // What follows a passage is seen by nobody before it, and its targets do not count: any id will do.
    ids = std::replace_copy(tokens.begin(), tokens.end() - 1, ids, int64_t{kPadding}, int64_t{0});
    targets = std::replace_copy(tokens.begin() + 1, tokens.end(), targets, int64_t{kPadding}, kIgnoredTarget);
  }
  return result;
}

Batches::Batches(const Options& options, int rank, int worldSize)
    : options_(options),
      rank_(options.modelParallel.placeOf(rank, worldSize).copy),
      ranks_(options.modelParallel.placeOf(rank, worldSize).copies),
      corpus_(loadCorpus(options)),
      sampleCount_(trainedSamples(options, corpus_, ranks_)),
      globalBatch_(options.batchSize * ranksOfBatch(options, ranks_)),
      sampler_(sampleCount_, ranks_, rank_, DistributedSampler::GlobalBatch{globalBatch_}, options.seed, options.tail,
               corpus_.samplesOfShards()),
      stepsPerEpoch_(stepsOfAnEpoch(options, sampleCount_, ranksOfBatch(options, ranks_))) {}

RunSize Batches::runSize(int64_t steps) const {
  return {.steps = steps, .ranks = ranks_, .samples = sampleCount_, .text = corpus_.fingerprint()};
}

int64_t Batches::samplesOfAnUpdate() const {
  return (options_.averaging.isAsynchronous() ? options_.batchSize : globalBatch_) * options_.accumulate;
}

int64_t Batches::positionsIn(int64_t step) {
  const auto samples =
      options_.averaging.isAsynchronous() ? static_cast<int64_t>(samplesOf(step).size()) : samplesIn(step);
  return samples * options_.seqLength;
}

void Batches::addMetrics(int64_t step, StepMetrics& metrics) {
  metrics.tokens = options_.averaging.isAsynchronous() ? targetsIn(samplesOf(step)) : targetsIn(step);
  if (options_.isPadded() && positionsIn(step) > 0) {
    metrics.ofMethods["padding"] =
        100 * (1 - static_cast<double>(metrics.tokens) / static_cast<double>(positionsIn(step)));
  }
}

int64_t Batches::microBatches(int64_t step) const {
  return std::min(options_.accumulate, sampler_.batchesPerEpoch() - batchOfMicro(step, 0));
}

int64_t Batches::samplesIn(int64_t step) const {
  const int64_t last = microBatches(step) - 1;  // the only one that may not be full
  return last * globalBatch_ + sampler_.samplesIn(batchOfMicro(step, last));
}

int64_t Batches::targetsIn(const std::vector<int64_t>& samples) const {
  return std::accumulate(samples.begin(), samples.end(), int64_t{0},
                         [&](int64_t sum, int64_t sample) { return sum + corpus_.targetsIn(sample); });
}

int64_t Batches::targetsIn(int64_t step) {
  if (!corpus_.isPadded()) {
    return samplesIn(step) * corpus_.seqLength();
  }
  int64_t targets = 0;
  for (int64_t micro = 0; micro < microBatches(step); ++micro) {
    targets += targetsIn(sampler_.wholeBatch(step / stepsPerEpoch_, batchOfMicro(step, micro)));
  }
  return targets;
}

Batches::Weight Batches::weightOf(int64_t step, int64_t micro) {
  const int64_t batch = batchOfMicro(step, micro), epoch = step / stepsPerEpoch_;
  double own = static_cast<double>(sampler_.share(batch)), all = static_cast<double>(sampler_.samplesIn(batch)),
         ofStep = static_cast<double>(samplesIn(step)), ownOfStep = 0;
  if (corpus_.isPadded()) {
    own = static_cast<double>(targetsIn(sampler_.batch(epoch, batch)));
    all = static_cast<double>(targetsIn(sampler_.wholeBatch(epoch, batch)));
    ofStep = static_cast<double>(targetsIn(step));
    ownOfStep = static_cast<double>(targetsIn(samplesOf(step)));
  } else {
    for (int64_t each = 0; each < microBatches(step); ++each) {
      ownOfStep += static_cast<double>(sampler_.share(batchOfMicro(step, each)));
    }
  }
  return {.ranks = own * ranks_ / all, .micros = ofStep / all, .ownMicros = own > 0 ? ownOfStep / own : 0};
}

std::vector<int64_t> Batches::samplesOf(int64_t step) {
  std::vector<int64_t> all;
  for (int64_t micro = 0; micro < microBatches(step); ++micro) {
    const auto batch = sampler_.batch(step / stepsPerEpoch_, batchOfMicro(step, micro));
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

Batch Batches::of(int64_t step, int64_t micro) {
  const int64_t epoch = step / stepsPerEpoch_, batch = batchOfMicro(step, micro);
  auto indices = sampler_.batch(epoch, batch);
  if (indices.empty()) {
    indices = {sampler_.wholeBatch(epoch, batch).front()};  // what is not finite then belongs to the step
  }
  return batchOf(corpus_, indices);
}

}  // namespace gloo_bypass::trainer
