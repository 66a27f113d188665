// The training text as samples of seqLength tokens, each with its targets (the same tokens, one further on).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "trainer/data/passages.h"
#include "trainer/data/token_shards.h"
#include "trainer/data/tokenizer.h"

namespace gloo_bypass::trainer {

constexpr int32_t kPadding = -1;

class Corpus {
 public:
  // Takes the first maxSamples samples of the text file (0: all). Throws ProgramError for an unreadable or empty
  // file, or one too short for a single sample.
  Corpus(const std::string& path, Tokenizer& tokenizer, int64_t seqLength, int64_t maxSamples);
  // Each passage is a sample, its tokens up to seqLength + 1; a shorter one is padded. Passages of one token are left
  // out.
  Corpus(const std::string& path, Tokenizer& tokenizer, Passages passages, int64_t seqLength, int64_t maxSamples);
  // Passages packed into one row, which is cut like a text.
  static Corpus packed(const std::string& path, Tokenizer& tokenizer, Passages passages, int64_t seqLength,
                       int64_t maxSamples);
  // Of a folder that has been tokenised already. byShard: no sample is of two shards.
  Corpus(const std::string& path, TokenShards shards, bool byShard, int64_t seqLength, int64_t maxSamples);

  int64_t sampleCount() const { return sampleCount_; }
  int64_t seqLength() const { return seqLength_; }
  // Tokens i x T ... (i + 1) x T inclusive, of the text or of its shard: T inputs and, one further on, T targets. Of a
  // passage, kPadding behind its last token.
  std::vector<int32_t> sample(int64_t index) const;
  // Its targets that are no padding: T, unless samples are passages.
  int64_t targetsIn(int64_t index) const;
  bool isPadded() const { return !passageEnds_.empty(); }
  // A digest of some samples all over it: one text under one vocabulary has one, another text another.
  std::string fingerprint() const;
  // Of each shard, where no sample is of two; else empty.
  const std::vector<int64_t>& samplesOfShards() const { return samplesOfShards_; }

 private:
  Corpus(const std::string& path, std::vector<int32_t> tokens, int64_t seqLength, int64_t maxSamples);
  void countSamples(const std::string& path, int64_t tokens, int64_t maxSamples);
  int64_t beginOf(int64_t sample) const;  // in the text

  std::variant<std::vector<int32_t>, TokenShards> tokens_;
  std::vector<int64_t> passageEnds_;  // in tokens_; none: the text is cut
  std::vector<int64_t> samplesOfShards_;
  int64_t seqLength_;
  int64_t sampleCount_ = 0;
};

}  // namespace gloo_bypass::trainer
