#include "trainer/data/passages.h"

#include <algorithm>

namespace gloo_bypass::trainer {
namespace {

constexpr std::string_view kBlank = " \t\r\n\f\v";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// Behind the last one of `text`, which begins with a line; 0: there is none, or it has no end yet.
size_t endOfBlankLine(std::string_view text) {
  for (size_t rest = text.rfind('\n') + 1; rest > 0;) {
    const size_t begin = text.substr(0, rest - 1).rfind('\n') + 1;  // of the line that ends at rest - 1
    if (trimmed(text.substr(begin, rest - begin)).empty()) {
      return rest;
    }
    rest = begin;
  }
  return 0;
}

}  // namespace

TextPieces passagePieces(const std::string& path, Passages kind, size_t pieceBytes) {
  return TextPieces(
      path,
      [kind](std::string_view text) { return kind == Passages::kLines ? text.rfind('\n') + 1 : endOfBlankLine(text); },
      pieceBytes);
}

void pack(const std::string& path, Passages kind, Tokenizer& tokenizer,
          const std::function<bool(std::span<const int32_t>)>& take) {
  const int32_t endOfText = tokenizer.endOfText();
  TextPieces pieces = passagePieces(path, kind);
  for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
    for (const auto passage : passagesOf(piece, kind)) {
      auto tokens = tokenizer.encode(passage);
      tokens.push_back(endOfText);
      if (!take(tokens)) {
        return;
      }
    }
  }
}

std::vector<std::string_view> passagesOf(std::string_view text, Passages kind) {
  std::vector<std::string_view> passages;
  size_t begin = 0;  // of the passage
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

}  // namespace gloo_bypass::trainer
