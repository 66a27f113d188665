#include "trainer/data/corpus.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/files/file_io.h"
#include "trainer/files/sha256.h"

namespace gloo_bypass::trainer {

namespace {

// How many tokens the first maxSamples samples need.
size_t tokenLimit(int64_t seqLength, int64_t maxSamples) {
  return maxSamples == 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(maxSamples * seqLength + 1);
}

// Of the beginning of a text, as many as there are up to `limit`.
std::vector<int32_t> tokensOf(const std::string& path, Tokenizer& tokenizer, size_t limit) {
  std::vector<int32_t> tokens;
  TextPieces pieces = tokenisablePieces(path, tokenizer);
  for (auto piece = pieces.next(); !piece.empty() && tokens.size() < limit; piece = pieces.next()) {
    const auto ids = tokenizer.encode(piece, limit - tokens.size());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  return tokens;
}

}  // namespace

Corpus::Corpus(const std::string& path, std::vector<int32_t> tokens, int64_t seqLength, int64_t maxSamples)
    : tokens_(std::move(tokens)), seqLength_(seqLength) {
  countSamples(path, static_cast<int64_t>(std::get<std::vector<int32_t>>(tokens_).size()), maxSamples);
}

Corpus::Corpus(const std::string& path, Tokenizer& tokenizer, int64_t seqLength, int64_t maxSamples)
    : Corpus(path, tokensOf(path, tokenizer, tokenLimit(seqLength, maxSamples)), seqLength, maxSamples) {}

Corpus Corpus::packed(const std::string& path, Tokenizer& tokenizer, Passages passages, int64_t seqLength,
                      int64_t maxSamples) {
  std::vector<int32_t> row;
  pack(path, passages, tokenizer, [&](std::span<const int32_t> tokens) {
    row.insert(row.end(), tokens.begin(), tokens.end());
    return row.size() < tokenLimit(seqLength, maxSamples);
  });
  return Corpus(path, std::move(row), seqLength, maxSamples);
}

Corpus::Corpus(const std::string& path, Tokenizer& tokenizer, Passages passages, int64_t seqLength, int64_t maxSamples)
    : seqLength_(seqLength) {
  auto& tokens = std::get<std::vector<int32_t>>(tokens_);
  TextPieces pieces = passagePieces(path, passages);
  const auto isEnough = [&] { return maxSamples != 0 && sampleCount_ == maxSamples; };
  for (auto piece = pieces.next(); !piece.empty() && !isEnough(); piece = pieces.next()) {
    for (const auto passage : passagesOf(piece, passages)) {
      if (isEnough()) {
        break;
      }
      const auto ids = tokenizer.encode(passage, static_cast<size_t>(seqLength + 1));
      if (ids.size() > 1) {
        tokens.insert(tokens.end(), ids.begin(), ids.end());
        passageEnds_.push_back(static_cast<int64_t>(tokens.size()));
        ++sampleCount_;
      }
    }
  }
  if (sampleCount_ == 0) {
    throw UsageError(fmt::format("{} has no passage of two tokens: give a text with lines, or cut it", path));
  }
}

Corpus::Corpus(const std::string& path, TokenShards shards, bool byShard, int64_t seqLength, int64_t maxSamples)
    : tokens_(std::move(shards)), seqLength_(seqLength) {
  const auto& ends = std::get<TokenShards>(tokens_).ends();
  countSamples(path, ends.back(), maxSamples);
  if (byShard) {
    int64_t begin = 0;
    for (const int64_t end : ends) {
      samplesOfShards_.push_back((end - begin - 1) / seqLength);
      begin = end;
    }
    sampleCount_ = std::accumulate(samplesOfShards_.begin(), samplesOfShards_.end(), int64_t{0});
  }
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

int64_t Corpus::beginOf(int64_t sample) const {
  if (isPadded()) {
    return sample == 0 ? 0 : passageEnds_[static_cast<size_t>(sample) - 1];
  }
  int64_t begin = 0;  // of the shard
  for (size_t shard = 0; shard < samplesOfShards_.size() && sample >= samplesOfShards_[shard]; ++shard) {
    sample -= samplesOfShards_[shard];
    begin = std::get<TokenShards>(tokens_).ends()[shard];
  }
  return begin + sample * seqLength_;
}

std::vector<int32_t> Corpus::sample(int64_t index) const {
  std::vector<int32_t> sample(static_cast<size_t>(seqLength_ + 1), kPadding);
  const int64_t begin = beginOf(index);
  if (const auto* shards = std::get_if<TokenShards>(&tokens_)) {
    shards->read(begin, sample);
  } else {
    std::copy_n(std::get<std::vector<int32_t>>(tokens_).begin() + begin, targetsIn(index) + 1, sample.begin());
  }
  return sample;
}

std::string Corpus::fingerprint() const {
  constexpr int64_t kSamples = 256;
  const int64_t samples = std::min(kSamples, sampleCount_);
  Sha256 digest;
  for (int64_t i = 0; i < samples; ++i) {
    const auto tokens = sample(i * (sampleCount_ - 1) / std::max<int64_t>(samples - 1, 1));  // the last one, too
    digest.add(std::as_bytes(std::span(tokens)));
  }
  return digest.hex().substr(0, 16);
}

int64_t Corpus::targetsIn(int64_t index) const {
  if (!isPadded()) {
    return seqLength_;
  }
  const auto at = static_cast<size_t>(index);
  return passageEnds_[at] - (at == 0 ? 0 : passageEnds_[at - 1]) - 1;
}

}  // namespace gloo_bypass::trainer
