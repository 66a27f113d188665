#include "tools/common/program_path.h"

#include <filesystem>

namespace gloo_bypass {

std::string programPath() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
std::string programFolder() { return std::filesystem::path(programPath()).parent_path().string(); }

}  // namespace gloo_bypass
