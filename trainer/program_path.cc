#include "trainer/program_path.h"

#include <filesystem>

namespace gloo_bypass::trainer {

std::string programPath() { return std::filesystem::read_symlink("/proc/self/exe").string(); }
std::string programFolder() { return std::filesystem::path(programPath()).parent_path().string(); }

std::string defaultPluginPath() {
  const std::filesystem::path folder = programFolder();
  const std::filesystem::path installed = folder / "libgloo_bypass.so";
  return (std::filesystem::exists(installed) ? installed : folder.parent_path() / "plugin/libgloo_bypass.so").string();
}

} // namespace gloo_bypass::trainer
