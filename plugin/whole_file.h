// Files that others read while we write: whole or not at all.
#pragma once

#include <string>

#include "transport/base/status.h"

namespace gloo_bypass {

// Written beside `path` and renamed: a reader sees the old text or the new one. The error is errno's text; nothing is left behind.
Status writeWholeFile(const std::string& path, const std::string& text);

// %p in a path is the process id.
std::string withProcessId(std::string path);

}  // namespace gloo_bypass
