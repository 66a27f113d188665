#include "transport/channel/setting.h"

#include <algorithm>

namespace gloo_bypass {

std::vector<Setting> inGroup(SettingGroup group, std::vector<Setting> rows) {
  for (Setting& row : rows) row.group = group;
  return rows;
}

bool isPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

bool isFilePath(std::string_view text) {
  return isPrintable(text) && text.find('/') != std::string_view::npos && text.back() != '/';
}

std::string inWords(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += words[i];
  }
  return list;
}

}  // namespace gloo_bypass
