#include "plugin/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

namespace gloo_bypass {

Status writeWholeFile(const std::string& path, const std::string& text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  bool ok = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) ok = false;
  if (ok && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  Status failed(ErrorScope::kDevice, ErrorCode::kUnavailable, std::strerror(errno));
  if (file != nullptr) unlink(temporary.c_str());
  return failed;
}

std::string withProcessId(std::string path) {
  if (const std::size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

}  // namespace gloo_bypass
