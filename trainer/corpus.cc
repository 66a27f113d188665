#include "trainer/corpus.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "programs/error.h"
#include "trainer/file_io.h"

namespace gloo_bypass::trainer {

namespace {

std::string_view textOf(const MappedFile& file) {
  if (file.bytes().empty()) {
    throw UsageError(fmt::format("{} is empty: give a text file to train on", file.path()));
  }
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

} // namespace

Corpus::Corpus(const std::string& path, Tokenizer& tokenizer, int64_t seqLength, int64_t maxSamples)
    : seqLength_(seqLength) {
  const MappedFile file(path);
  const auto text = textOf(file);
  const size_t limit = maxSamples == 0 ? std::numeric_limits<size_t>::max()
                                       : static_cast<size_t>(maxSamples * seqLength + 1);
  auto tokens = tokenizer.encode(text, limit);
  countSamples(path, static_cast<int64_t>(tokens.size()), maxSamples);
  tokens_ = std::move(tokens);
}

Corpus::Corpus(const std::string& path, Tokenizer& tokenizer, Passages passages, int64_t seqLength, int64_t maxSamples)
    : seqLength_(seqLength) {
  const MappedFile file(path);
  auto& tokens = std::get<std::vector<int32_t>>(tokens_);
  for (const auto passage : passagesOf(textOf(file), passages)) {
    if (maxSamples != 0 && sampleCount_ == maxSamples) {
      break;
    }
    const auto ids = tokenizer.encode(passage, static_cast<size_t>(seqLength + 1));
    if (ids.size() > 1) {
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      passageEnds_.push_back(static_cast<int64_t>(tokens.size()));
      ++sampleCount_;
    }
  }
  if (sampleCount_ == 0) {
    throw UsageError(fmt::format("{} has no passage of two tokens: give a text with lines, or cut it", path));
  }
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
  std::vector<int32_t> sample(static_cast<size_t>(seqLength_ + 1), kPadding);
  const auto at = static_cast<size_t>(index);
  const int64_t begin = !isPadded() ? index * seqLength_ : at == 0 ? 0 : passageEnds_[at - 1];
  if (const auto* shards = std::get_if<TokenShards>(&tokens_)) {
    shards->read(begin, sample);
  } else {
    std::copy_n(std::get<std::vector<int32_t>>(tokens_).begin() + begin, targetsIn(index) + 1, sample.begin());
  }
  return sample;
}

int64_t Corpus::targetsIn(int64_t index) const {
  if (!isPadded()) {
    return seqLength_;
  }
  const auto at = static_cast<size_t>(index);
  return passageEnds_[at] - (at == 0 ? 0 : passageEnds_[at - 1]) - 1;
}

} // namespace gloo_bypass::trainer
