// Numbers in texts that people or other programs wrote.
#pragma once

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

namespace gloo_bypass {

// A whole number from `least` to `most` in decimal digits; nothing else may stand around it.
template <typename Number>
std::optional<Number> wholeNumber(std::string_view text, Number least = std::numeric_limits<Number>::min(),
                                  Number most = std::numeric_limits<Number>::max()) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end || number < least || number > most) return std::nullopt;
  return number;
}

}  // namespace gloo_bypass
