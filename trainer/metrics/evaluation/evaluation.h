// Loss and perplexity on samples that are not trained on, reduced over ranks with counts.
//
// Rank r of N takes the samples r, r + N, ...; each adds up the losses of its tokens, and the ranks' sums are divided
// by the ranks' number of tokens. Shares that differ therefore weigh what they hold, and the result does not depend on
// N but for the order of additions. Perplexity is e^loss (Jurafsky and Martin, Speech and Language Processing,
// section 3.3), with the natural logarithm of the loss.
//
// Nothing that training computes depends on it: no dropout, no random numbers, no gradients. With --average each rank
// evaluates the model it holds at that step. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json_fwd.hpp>

#include "trainer/config/options.h"
#include "trainer/data/batches.h"
#include "trainer/data/corpus.h"
#include "trainer/distributed/communicator.h"
#include "trainer/model/gpt2.h"

namespace gloo_bypass::trainer {

class Evaluation {
 public:
  // References must outlive it. Throws UsageError where the text that options name makes no sample.
  Evaluation(const Options& options, const Batches& batches);

  bool isUsed() const { return count_ > 0; }
  int64_t sampleCount() const { return count_; }
  // After step `step`, counted from 1. The run always evaluates at its end, too.
  bool isDueAfter(int64_t step) const { return isUsed() && every_ > 0 && step % every_ == 0; }

  // By all ranks together; hasLoss: what the model computes here is a loss that counts. Every rank takes as many
  // forwards, as a model that is gathered from all of them needs.
  // {"eval_loss", "eval_perplexity", "eval_samples", "eval_tokens", "t_eval_s"}.
  nlohmann::json run(const Gpt2& model, bool hasLoss, Communicator& communicator) const;

 private:
  std::optional<Corpus> text_;  // --eval-data's
  const Corpus& corpus_;
  int64_t first_, count_, every_, batchSize_;
  int rank_, worldSize_;
};

}  // namespace gloo_bypass::trainer
