// The training text as samples of seqLength tokens, each with its targets (the same tokens, one further on).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "trainer/data/token_shards.h"
#include "trainer/tokenizer.h"

namespace gloo_bypass::trainer {

class Corpus {
 public:
  // Takes the first maxSamples samples of the text file (0: all). Throws ProgramError for an unreadable or empty
  // file, or one too short for a single sample.
  Corpus(const std::string& path, Tokenizer& tokenizer, int64_t seqLength, int64_t maxSamples);
  // Of a folder that has been tokenised already.
  Corpus(const std::string& path, TokenShards shards, int64_t seqLength, int64_t maxSamples);

  int64_t sampleCount() const { return sampleCount_; }
  int64_t seqLength() const { return seqLength_; }
  // Tokens i x T ... (i + 1) x T inclusive: T inputs and, one further on, T targets.
  std::vector<int32_t> sample(int64_t index) const;

 private:
  void countSamples(const std::string& path, int64_t tokens, int64_t maxSamples);

  std::variant<std::vector<int32_t>, TokenShards> tokens_;
  int64_t seqLength_;
  int64_t sampleCount_ = 0;
};

} // namespace gloo_bypass::trainer
