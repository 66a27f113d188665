#include "trainer/batches.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "programs/error.h"
#include "programs/program_path.h"
#include "trainer/gpt2.h"
#include "trainer/tokenizer.h"

namespace gloo_bypass::trainer {
namespace {

std::string dataPath(const Options& options) {
  return options.dataPath.empty() ? programFolder() + "/sample.txt" : options.dataPath;
}

int64_t fullSteps(const Options& options, int64_t samples, int worldSize) {
  const int64_t batches = samples / (options.batchSize * worldSize);
  if (batches < options.accumulate) {
    throw UsageError(fmt::format("{} samples do not fill one step of {} ranks x batch size {} x {} micro-batches", samples,
        worldSize, options.batchSize, options.accumulate));
  }
  return batches / options.accumulate;
}

} // namespace

Corpus loadCorpus(const Options& options) {
  auto tokenizer = options.vocabPath.empty() ? Tokenizer::bytes()
                                             : Tokenizer::bytePairs(options.vocabPath, options.mergesPath);
  const auto config = Gpt2Config::of(options.model);
  if (tokenizer.idBound() > config.vocabulary) {
    throw UsageError(fmt::format("{} has token ids up to {}, the model {} takes {}: use --model distilgpt2, or bytes",
        options.vocabPath, tokenizer.idBound() - 1, name(options.model), config.vocabulary));
  }
  if (options.seqLength > config.positions) {
    throw UsageError(fmt::format("--seq-length {}: the model {} has {} positions", options.seqLength,
        name(options.model), config.positions));
  }
  return Corpus(dataPath(options), tokenizer, options.seqLength, options.samples);
}

Batches::Batches(const Options& options, int rank, int worldSize)
    : options_(options),
      corpus_(loadCorpus(options)),
      sampler_(corpus_.sampleCount(), worldSize, rank, options.batchSize, options.seed),
      stepsPerEpoch_(fullSteps(options, corpus_.sampleCount(), worldSize)) {}

Batch Batches::of(int64_t step, int64_t micro) {
  const int64_t batch = step % stepsPerEpoch_ * options_.accumulate + micro;
  const auto indices = sampler_.batch(step / stepsPerEpoch_, batch);
  const auto rows = static_cast<int64_t>(indices.size()), length = options_.seqLength;
  Batch result{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong)};
  auto* ids = result.ids.data_ptr<int64_t>();
  auto* targets = result.targets.data_ptr<int64_t>();
  for (const int64_t index : indices) {
    const auto tokens = corpus_.sample(index);
    ids = std::copy(tokens.begin(), tokens.end() - 1, ids);
    targets = std::copy(tokens.begin() + 1, tokens.end(), targets);
  }
  return result;
}

} // namespace gloo_bypass::trainer
