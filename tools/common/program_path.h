// Where this program lies, to find what was built beside it.
#pragma once

#include <string>

namespace gloo_bypass {

// The running executable's path, and its folder.
std::string programPath();
std::string programFolder();

}  // namespace gloo_bypass
