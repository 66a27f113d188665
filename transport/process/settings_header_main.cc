// print_settings_header: prints gloo_bypass/settings.h, in which each setting is a typed constant with its
// meaning and range. Runs in the build; the table of settings stays the only list of them.
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <regex>
#include <string>

#include <fmt/format.h>

#include "transport/process/settings.h"

namespace gloo_bypass {
namespace {

constexpr const char* kBegin =
    R"(// Every setting by name, with its type, unit, range and meaning. Made by the build from the table of settings: gloo-bypass-config prints
// the same. For DeviceOptions::set (gloo_bypass/device.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace gloo_bypass {

// The name of a setting with values of type Value: std::int64_t, a std::chrono duration, or text.
template <typename Value>
struct SettingName {
  const char* text;
};

namespace setting {
)";

constexpr const char* kEnd = R"(
}  // namespace setting
}  // namespace gloo_bypass
)";

const char* typeOf(const Setting& setting) {
  static const std::regex range("-?[0-9]+ to [0-9]+");
  if (!std::regex_match(setting.allowed, range)) return "std::string_view";
  if (setting.unit == "us") return "std::chrono::microseconds";
  if (setting.unit == "ms") return "std::chrono::milliseconds";
  return "std::int64_t";
}

// GLOO_BYPASS_MEMORY_MIB: kMemoryMib
std::string constantOf(const Setting& setting) {
  std::string constant = "k";
  bool capital = true;
  for (const char letter : setting.name.substr(kSettingPrefix.size())) {
    if (letter != '_')
      constant += static_cast<char>(capital ? letter : std::tolower(static_cast<unsigned char>(letter)));
    capital = letter == '_';
  }
  return constant;
}

std::string declarationOf(const Setting& setting) {
  const std::string preset = setting.format(TransportConfig());
  const std::string unit = setting.unit.empty() ? "" : " " + setting.unit;
  return fmt::format("\n// {}.\n// Default {}{}; allowed: {}{}.\ninline constexpr SettingName<{}> {}{{\"{}\"}};\n",
                     setting.description, preset.empty() ? "empty" : preset, preset.empty() ? "" : unit,
                     setting.allowed, unit, typeOf(setting), constantOf(setting), setting.name);
}

}  // namespace
}  // namespace gloo_bypass

int main() {
  std::string header = gloo_bypass::kBegin;
  for (const gloo_bypass::Setting& setting : gloo_bypass::settings()) header += gloo_bypass::declarationOf(setting);
  header += gloo_bypass::kEnd;
  return std::fputs(header.c_str(), stdout) < 0 || std::fflush(stdout) != 0;
}
