// What this program was built from.
#pragma once

#include <string>

namespace gloo_bypass {

const char* versionName();   // "0.1.0"
const char* commitName();    // of `git describe`; "unknown" outside a repository
std::string buildVersion();  // "0.1.0 (commit 4b28755)"

}  // namespace gloo_bypass
