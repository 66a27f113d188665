// A text as passages: each a sample of its own, or packed, one after the other with the end-of-text token behind each,
// in one row that is cut anywhere. No torch.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/options.h"
#include "trainer/data/tokenizer.h"
#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {

// In their order, without the white space around them; blank ones are none. Views of `text`. `kind` is not kNone.
std::vector<std::string_view> passagesOf(std::string_view text, Passages kind);

// A text file in pieces of whole passages.
TextPieces passagePieces(const std::string& path, Passages kind, size_t pieceBytes = TextPieces::kUsualBytes);

// Gives the packed row to `take` part by part, until it returns false: the passages of a text file, tokenised, each
// with its end of text.
void pack(const std::string& path, Passages kind, Tokenizer& tokenizer,
          const std::function<bool(std::span<const int32_t>)>& take);

}  // namespace gloo_bypass::trainer
