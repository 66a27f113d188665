#include "trainer/corpus.h"

#include <limits>

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
  tokens_ = tokenizer.encode(text, limit);
  sampleCount_ = (static_cast<int64_t>(tokens_.size()) - 1) / seqLength;
  if (sampleCount_ < 1) {
    throw UsageError(fmt::format(
        "{} holds {} tokens, too few for one sample of {} tokens and its target: lower --seq-length or give a "
        "longer text",
        path, tokens_.size(), seqLength));
  }
}

std::span<const int32_t> Corpus::sample(int64_t index) const {
  return std::span(tokens_).subspan(
      static_cast<size_t>(index * seqLength_), static_cast<size_t>(seqLength_ + 1));
}

} // namespace gloo_bypass::trainer
