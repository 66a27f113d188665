// A folder that is removed with the test, and a reader of files.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace gloo_bypass {

struct TemporaryFolder {
  TemporaryFolder() {
    path = "/tmp/gloo-bypass-test-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path + "/" + name; }

  std::string path;
};

inline void writeText(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

inline std::string contentsOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace gloo_bypass
