// The table of all settings: one row a GLOO_BYPASS_* variable, with its unit, range and meaning. Parser, help text,
// docs/configuration.md and the comparison of two configurations are all produced from it. Each back-end describes its
// own rows (transport/channel/setting.h).
//
// Thread: any; the table is immutable after its first use. Reads no environment (transport/process/environment.cc
// does).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/channel/setting.h"

namespace gloo_bypass {

inline constexpr std::string_view kSettingPrefix = "GLOO_BYPASS_";
// Variables of the project's own tests (seeds, numbers of runs): no settings, and no mistake.
inline constexpr std::string_view kTestPrefixes[] = {"GLOO_BYPASS_SIM_", "GLOO_BYPASS_TEST_"};

std::span<const Setting> settings();

// A variable and its text, as they came from the environment.
using SettingText = std::pair<std::string, std::string>;

// The defaults with `texts` applied and validated. Only names that start with kSettingPrefix are looked at; an unknown
// one is an error that names the nearest known one. An empty text leaves the default.
Result<TransportConfig> configurationFromTexts(std::span<const SettingText> texts);

// Ranges of every setting, and what must hold between two of them. The error names setting, value and what is allowed.
Status validate(const TransportConfig& config);

// The settings that differ, in the table's order: "GLOO_BYPASS_LINK: memif and netdev". Empty: equal.
std::vector<std::string> differences(const TransportConfig& first, const TransportConfig& second);

// The table for people, ending in a new line.
std::string settingsAsText();
std::string settingsAsMarkdown();
// NAME=value for each setting, one a line; a value that is not the default is marked.
std::string configurationAsText(const TransportConfig& config);

}  // namespace gloo_bypass
