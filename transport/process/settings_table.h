// The rows of the table of settings; see transport/process/settings.h, which everybody else includes.
#pragma once

#include <vector>

#include "transport/process/settings.h"

namespace gloo_bypass {

// Made anew by each call: settings() keeps the one that is used. Thread: any.
std::vector<Setting> makeSettingsTable();

}  // namespace gloo_bypass
