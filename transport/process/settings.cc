#include "transport/process/settings.h"

#include <algorithm>

#include <fmt/format.h>

#include "transport/base/printable.h"
#include "transport/process/back_ends.h"
#include "transport/process/settings_table.h"

namespace gloo_bypass {
namespace {

Error wrong(std::string message) { return {ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)}; }

std::string withUnit(const Setting& setting) {
  return setting.unit.empty() ? setting.allowed : setting.allowed + " " + setting.unit;
}

Error wrongValue(const Setting& setting, std::string_view text) {
  return wrong(fmt::format("{}='{}' is not allowed: it must be {}", setting.name, printable(text), withUnit(setting)));
}

// Edits (insert, delete, replace) that turn one word into the other.
std::size_t editDistance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[to.size()];
}

Error unknownVariable(std::string_view name) {
  // A name cut short (the unit forgotten) is nearer than one of other words.
  const auto distance = [&](const Setting& setting) {
    return setting.name.starts_with(name) ? 1 : editDistance(name, setting.name);
  };
  const auto nearest = std::min_element(settings().begin(), settings().end(),
                                        [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  return wrong(fmt::format("{} is not a known setting: did you mean {}? (docs/configuration.md lists all)",
                           printable(name), nearest->name));
}

// Rules between settings; each error names both.
Status validateTogether(const TransportConfig& config) {
  for (const BackEnd& backEnd : backEnds()) {
    if (backEnd.checkSettings == nullptr) continue;
    if (Status status = backEnd.checkSettings(config); !status) return status;
  }
  const auto ordered = [](const char* low, Duration lowValue, const char* high, Duration highValue) -> Status {
    if (lowValue <= highValue) return {};
    const auto ms = [](Duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    return wrong(fmt::format("{} ({} ms) must not exceed {} ({} ms)", low, ms(lowValue), high, ms(highValue)));
  };
  if (!config.keyFile.empty() && config.security == Security::kOff) {
    return wrong("GLOO_BYPASS_KEY_FILE is set and GLOO_BYPASS_SECURITY is off: set it to encrypt, or set no key file");
  }
  const SessionConfig& session = config.session;
  if (Status s = ordered("GLOO_BYPASS_MIN_RTO_US", session.minRto, "GLOO_BYPASS_MAX_RTO_MS", session.maxRto); !s)
    return s;
  // A peer that is well has as long again to answer a probe.
  return ordered("GLOO_BYPASS_KEEP_ALIVE_MS", session.keepAlive,
                 config.peerTimeout == Duration{} ? "half of the least that GLOO_BYPASS_PEER_TIMEOUT_MS='0' means"
                                                  : "half of GLOO_BYPASS_PEER_TIMEOUT_MS",
                 peerTimeout(config, Duration{}) / 2);
}

std::string defaultOf(const Setting& setting) {
  static const TransportConfig defaults;
  const std::string text = setting.format(defaults);
  return text.empty() ? "(empty)" : text;
}

}  // namespace

std::span<const Setting> settings() {
  static const std::vector<Setting>& table =
      *new std::vector<Setting>(makeSettingsTable());  // never destroyed: used at exit
  return table;
}

Result<TransportConfig> configurationFromTexts(std::span<const SettingText> texts) {
  TransportConfig config;
  for (const auto& [name, text] : texts) {
    if (!name.starts_with(kSettingPrefix)) continue;
    if (std::any_of(std::begin(kTestPrefixes), std::end(kTestPrefixes),
                    [name = name](auto prefix) { return name.starts_with(prefix); })) {
      continue;
    }
    const auto setting =
        std::find_if(settings().begin(), settings().end(), [name = name](const auto& s) { return s.name == name; });
    if (setting == settings().end()) return unknownVariable(name);
    if (text.empty()) continue;
    if (!setting->parse(text, config)) return wrongValue(*setting, text);
  }
  if (Status status = validateTogether(config); !status) return status.error();
  return config;
}

Status validate(const TransportConfig& config) {
  TransportConfig scratch, named = config;
  if (config.memifDirectoryIsDefault) named.memifDirectory.clear();  // auto does without one that cannot be used
  for (const Setting& setting : settings()) {
    const std::string text = setting.format(named);
    if (!setting.parse(text, scratch)) return wrongValue(setting, text);
  }
  return validateTogether(config);
}

std::vector<std::string> differences(const TransportConfig& first, const TransportConfig& second) {
  std::vector<std::string> found;
  for (const Setting& setting : settings()) {
    const std::string a = setting.format(first), b = setting.format(second);
    if (a != b) found.push_back(fmt::format("{}: '{}' and '{}'", setting.name, a, b));
  }
  return found;
}

std::string settingsAsText() {
  std::string text;
  for (const Setting& setting : settings()) {
    text += fmt::format("{}\n    {}\n    default {}, allowed: {}\n", setting.name, setting.description,
                        defaultOf(setting), withUnit(setting));
  }
  return text;
}

std::string settingsAsMarkdown() {
  std::string text = "| variable | default | unit | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Setting& setting : settings()) {
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", setting.name, defaultOf(setting), setting.unit,
                        setting.allowed, setting.description);
  }
  return text;
}

std::string configurationAsText(const TransportConfig& config) {
  static const TransportConfig defaults;
  std::string text;
  for (const Setting& setting : settings()) {
    const std::string value = setting.format(config);
    const bool isDefault = value == setting.format(defaults);
    text += fmt::format("{}={}{}\n", setting.name, value, isDefault ? "" : "  # not the default");
  }
  return text;
}

}  // namespace gloo_bypass
