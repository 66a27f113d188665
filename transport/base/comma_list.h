// Comma-separated lists.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace gloo_bypass {

// One part more than there are commas; parts may be empty.
inline std::vector<std::string> splitAtCommas(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace gloo_bypass
