// A text as passages, each a sample of its own, instead of one row of tokens that is cut anywhere. No torch.
#pragma once

#include <string_view>
#include <vector>

namespace gloo_bypass::trainer {

enum class Passages {
  kNone,
  kLines,      // as of WikiText, whose paragraphs are lines
  kParagraphs, // of a text whose lines are wrapped: blank lines are between them
};

// In their order, without the white space around them; blank ones are none. Views of `text`. `kind` is not kNone.
std::vector<std::string_view> passagesOf(std::string_view text, Passages kind);

} // namespace gloo_bypass::trainer
