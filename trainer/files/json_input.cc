#include "trainer/files/json_input.h"

#include <algorithm>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

}  // namespace

JsonInput::JsonInput(const InputFile& file, uint64_t begin, uint64_t bytes) : file_(file), next_(begin), left_(bytes) {
  fill();
}

nlohmann::json JsonInput::parse(const nlohmann::json::parser_callback_t& keeps) {
  return nlohmann::json::parse(Iterator{this}, Iterator{}, keeps, /*allow_exceptions=*/false);
}

// Of several blanks in a row the parser sees one: it keeps them until the next token.
void JsonInput::advance() {
  const auto isBlank = [this] { return !isString_ && kBlanks.find(part_[at_]) != std::string_view::npos; };
  const bool skips = isBlank();
  do {
    follow(part_[at_]);
    if (++at_ == part_.size()) {
      fill();
    }
  } while (skips && at_ < part_.size() && isBlank());
}

// Counts the bytes of a string or a number.
void JsonInput::follow(char c) {
  if (isString_) {
    isString_ = isEscaped_ || c != '"';
    isEscaped_ = !isEscaped_ && c == '\\';
  } else {
    constexpr std::string_view kBetween = " \t\r\n,:[]{}";
    isString_ = c == '"';
    tokenBytes_ = isString_ || kBetween.find(c) != std::string_view::npos ? 0 : tokenBytes_;
  }
  if (++tokenBytes_ > kMaxTokenBytes) {
    throw UsageError(fmt::format("{}: it has a text or number of more than {} bytes", file_.path(), kMaxTokenBytes));
  }
}

void JsonInput::fill() {
  part_.resize(static_cast<size_t>(std::min<uint64_t>(left_, kPartBytes)));
  at_ = 0;
  file_.read(next_, std::as_writable_bytes(std::span(part_)));
  next_ += part_.size();
  left_ -= part_.size();
}

nlohmann::json parseSmallJson(const std::string& text) {
  size_t values = 0;
  return nlohmann::json::parse(
      text, [&](int, nlohmann::json::parse_event_t, const nlohmann::json&) { return ++values <= kMostSmallValues; },
      /*allow_exceptions=*/false);
}

}  // namespace gloo_bypass::trainer
