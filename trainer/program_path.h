// Where this program lies, to find what was built beside it.
#pragma once

#include <string>

namespace gloo_bypass::trainer {

// The running executable's path, and its folder.
std::string programPath();
std::string programFolder();
// Where the plug-in is when nothing else is said: beside an installed program, in ../plugin/ of one in a build folder.
std::string defaultPluginPath();

} // namespace gloo_bypass::trainer
