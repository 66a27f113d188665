#include "trainer/data/passages.h"

#include <algorithm>

namespace gloo_bypass::trainer {
namespace {

constexpr std::string_view kBlank = " \t\r\n\f\v";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

} // namespace

const NamedChoices<Passages> kPassages{{"none", Passages::kNone}, {"lines", Passages::kLines}, {"paragraphs", Passages::kParagraphs}};

void pack(std::string_view text, Passages kind, Tokenizer& tokenizer, const std::function<bool(std::span<const int32_t>)>& take) {
  const int32_t endOfText = tokenizer.endOfText();
  for (const auto passage : passagesOf(text, kind)) {
    auto tokens = tokenizer.encode(passage);
    tokens.push_back(endOfText);
    if (!take(tokens)) {
      return;
    }
  }
}

std::vector<std::string_view> passagesOf(std::string_view text, Passages kind) {
  std::vector<std::string_view> passages;
  size_t begin = 0; // of the passage
  const auto end = [&](size_t at) {
    if (const auto passage = trimmed(text.substr(begin, at - begin)); !passage.empty()) {
      passages.push_back(passage);
    }
    begin = at;
  };
  for (size_t line = 0; line < text.size();) {
    const size_t newline = std::min(text.find('\n', line), text.size());
    if (kind == Passages::kLines || trimmed(text.substr(line, newline - line)).empty()) {
      end(newline);
    }
    line = newline + 1;
  }
  end(text.size());
  return passages;
}

} // namespace gloo_bypass::trainer
