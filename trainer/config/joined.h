// The elements of a range as one text. (fmt::join of fmt 9 draws a false -Wstringop-overflow from g++ 12.)
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace gloo_bypass::trainer {

template <typename Range>
std::string joined(const Range& range, std::string_view separator) {
  std::string text;
  for (const auto& element : range) {
    text += fmt::format("{}{}", text.empty() ? "" : separator, element);
  }
  return text;
}

}  // namespace gloo_bypass::trainer
