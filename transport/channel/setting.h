// One setting as data: a GLOO_BYPASS_* variable with its unit, range and meaning, and the way between its text and a
// field of TransportConfig. Each back-end's folder has the rows of its own settings (settings.h there), which state
// every bound once; transport/process/settings.h makes one table of all rows.
//
// Thread: any; pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/base/config.h"
#include "transport/base/whole_number.h"

namespace gloo_bypass {

// The parts of the table, in this order. Within one the back-ends' rows stand first.
enum class SettingGroup : std::uint8_t { kLinks, kProcess, kObserving, kProtocol, kBackEnd };

struct Setting {
  std::string name;         // GLOO_BYPASS_LINK
  std::string unit;         // "bytes", "us", ...; empty where there is none
  std::string allowed;      // for people: "memif, netdev or pci", "1 to 14"
  std::string description;  // one line
  // Writes the value that `text` stands for into the configuration. False: not allowed, nothing written.
  std::function<bool(std::string_view text, TransportConfig& config)> parse;
  // The text that parse() turns into the configuration's value.
  std::function<std::string(const TransportConfig& config)> format;
  SettingGroup group = SettingGroup::kBackEnd;
};
std::vector<Setting> inGroup(SettingGroup group, std::vector<Setting> rows);

// The field of a configuration at the end of `path`: kField<&TransportConfig::rdma, &RdmaConfig::port>.
template <auto... path>
inline constexpr auto kField = [](auto& config) -> auto& { return (config.*....*path); };

bool isPrintable(std::string_view text);
// A path with a / in it.
bool isFilePath(std::string_view text);
// "memif, netdev or pci"
std::string inWords(const std::vector<std::string>& words);

// A number, or a duration in `unit`: "us" or "ms".
template <typename Field>
Setting numberSetting(std::string name, std::string unit, std::int64_t lowest, std::int64_t highest,
                      std::string description, Field field) {
  using Value = std::remove_cvref_t<decltype(field(std::declval<TransportConfig&>()))>;
  const auto tick = unit == "us" ? Duration(std::chrono::microseconds(1)) : Duration(std::chrono::milliseconds(1));
  const auto parse = [=](std::string_view text, TransportConfig& config) {
    const auto value = wholeNumber(text, lowest, highest);
    if (!value) return false;
    if constexpr (std::is_same_v<Value, Duration>) {
      field(config) = *value * tick;
    } else {
      field(config) = static_cast<Value>(*value);
    }
    return true;
  };
  const auto format = [=](const TransportConfig& config) {
    if constexpr (std::is_same_v<Value, Duration>) {
      return fmt::format("{}", field(config) / tick);
    } else {
      return fmt::format("{}", field(config));
    }
  };
  return {std::move(name),        std::move(unit), fmt::format("{} to {}", lowest, highest),
          std::move(description), parse,           format};
}

template <typename Field, typename Value = std::remove_cvref_t<std::invoke_result_t<Field, TransportConfig&>>>
Setting choiceSetting(std::string name, std::vector<std::pair<std::string, std::type_identity_t<Value>>> choices,
                      std::string description, Field field) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  const auto parse = [=](std::string_view text, TransportConfig& config) {
    for (const auto& [word, value] : choices) {
      if (text != word) continue;
      field(config) = value;
      return true;
    }
    return false;
  };
  const auto format = [=](const TransportConfig& config) -> std::string {
    for (const auto& [word, value] : choices) {
      if (field(config) == value) return word;
    }
    return "not a known value";
  };
  return {std::move(name), "", inWords(words), std::move(description), parse, format};
}

// `isAllowed`: of a text that is not empty.
template <typename Field>
Setting textSetting(std::string name, std::string allowed, bool (*isAllowed)(std::string_view), std::string description,
                    Field field) {
  const auto parse = [=](std::string_view text, TransportConfig& config) {
    if (!text.empty() && !isAllowed(text)) return false;
    field(config) = std::string(text);
    return true;
  };
  return {std::move(name),        "",    std::move(allowed),
          std::move(description), parse, [=](const TransportConfig& config) { return std::string(field(config)); }};
}

}  // namespace gloo_bypass
