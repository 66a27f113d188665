#include "trainer/metrics/evaluation/evaluation.h"

#include <chrono>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::optional<Corpus> evaluationText(const Options& options) {
  const std::string& path = options.evaluation.dataPath;
  if (path.empty()) {
    return std::nullopt;
  }
  auto text = loadText(options, path, /*maxSamples=*/0);
  if (vocabularyOf(options, path) != vocabularyOf(options, "")) {
    throw UsageError(fmt::format(
        "--eval-data {} is of another vocabulary than the training text: give --vocab and --merges that the "
        "training text was tokenised with, or a folder that was",
        path));
  }
  return text;
}

}  // namespace

Evaluation::Evaluation(const Options& options, const Batches& batches)
    : text_(evaluationText(options)),
      corpus_(text_ ? *text_ : batches.corpus()),
      first_(text_ ? 0 : batches.sampleCount()),
      count_(text_ ? text_->sampleCount() : options.evaluation.samples),
      every_(options.evaluation.every),
      batchSize_(options.batchSize),
      rank_(batches.rank()),
      worldSize_(batches.ranks()) {}

nlohmann::json Evaluation::run(const Gpt2& model, bool hasLoss, Communicator& communicator) const {
  const at::NoGradGuard noGrad;
  const auto start = std::chrono::steady_clock::now();
  auto sums = at::zeros({2}, at::kDouble);  // of the tokens' losses; of tokens
  const int64_t forwards = ceilDivide(ceilDivide(count_, worldSize_), batchSize_);
  int64_t next = rank_;
  for (int64_t forward = 0; forward < forwards; ++forward) {
    std::vector<int64_t> indices;
    for (; next < count_ && static_cast<int64_t>(indices.size()) < batchSize_; next += worldSize_) {
      indices.push_back(first_ + next);
    }
    const bool hasSamples = !indices.empty();  // a rank that has none left keeps the others company
    const auto batch = batchOf(corpus_, hasSamples ? indices : std::vector<int64_t>{first_});
    const double loss = model.loss(batch.ids, batch.targets, /*dropout=*/0).item<double>();
    if (hasSamples && hasLoss) {
      const auto tokens = batch.targets.ge(0).sum().item<double>();  // padding is below
      sums[0] += loss * tokens;
      sums[1] += tokens;
    }
  }
  communicator.sum(sums);
  const double tokens = sums[1].item<double>(), loss = sums[0].item<double>() / tokens;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {{"eval_loss", loss},
          {"eval_perplexity", std::exp(loss)},
          {"eval_samples", count_},
          {"eval_tokens", static_cast<int64_t>(tokens)},
          {"t_eval_s", seconds.count()}};
}

}  // namespace gloo_bypass::trainer
