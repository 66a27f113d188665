#include "trainer/corpus.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "programs/error.h"
#include "trainer/file_io.h"

namespace gloo_bypass::trainer {

Corpus::Corpus(const std::string& path, Tokenizer& tokenizer, int64_t seqLength, int64_t maxSamples)
    : seqLength_(seqLength) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) {
    throw UsageError(fmt::format("{} is empty: give a text file to train on", path));
  }
  const size_t limit = maxSamples == 0 ? std::numeric_limits<size_t>::max()
                                       : static_cast<size_t>(maxSamples * seqLength + 1);
  auto tokens = tokenizer.encode(text, limit);
  countSamples(path, static_cast<int64_t>(tokens.size()), maxSamples);
  tokens_ = std::move(tokens);
}

Corpus::Corpus(const std::string& path, TokenShards shards, int64_t seqLength, int64_t maxSamples)
    : tokens_(std::move(shards)), seqLength_(seqLength) {
  countSamples(path, std::get<TokenShards>(tokens_).size(), maxSamples);
}

void Corpus::countSamples(const std::string& path, int64_t tokens, int64_t maxSamples) {
  sampleCount_ = (tokens - 1) / seqLength_;
  if (sampleCount_ < 1) {
    throw UsageError(fmt::format(
        "{} holds {} tokens, too few for one sample of {} tokens and its target: lower --seq-length or give a "
        "longer text",
        path, tokens, seqLength_));
  }
  if (maxSamples != 0) {
    sampleCount_ = std::min(sampleCount_, maxSamples);
  }
}

std::vector<int32_t> Corpus::sample(int64_t index) const {
  std::vector<int32_t> sample(static_cast<size_t>(seqLength_ + 1));
  const int64_t begin = index * seqLength_;
  if (const auto* shards = std::get_if<TokenShards>(&tokens_)) {
    shards->read(begin, sample);
  } else {
    std::copy_n(std::get<std::vector<int32_t>>(tokens_).begin() + begin, sample.size(), sample.begin());
  }
  return sample;
}

} // namespace gloo_bypass::trainer
