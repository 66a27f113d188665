#include "tools/common/result_file.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass {

void cannotWrite(const char* flag, const std::string& path, const std::string& why) {
  throw ProgramError(fmt::format("{}: cannot write {}: {}", flag, path, why));
}

void checkWritable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  const auto fail = [&](int error) { cannotWrite(flag, path, std::strerror(error)); };
  const std::filesystem::path file(path);
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) fail(EISDIR);
  if (std::filesystem::is_character_file(file, ignored) || std::filesystem::is_fifo(file, ignored)) {
    if (::access(file.c_str(), W_OK) != 0) fail(errno);
    return;  // written to, not replaced
  }
  if (std::filesystem::is_symlink(file, ignored) && std::filesystem::is_regular_file(file, ignored)) {
    cannotWrite(flag, path, "it is a symbolic link to a file: name the file itself");
  }
  if (!std::filesystem::is_directory(folder, ignored)) fail(ENOENT);
  if (::access(folder.c_str(), W_OK) != 0) fail(errno);
}

void writeResult(const char* flag, const std::string& path, const std::string& text, Durability durability) {
  if (path.empty()) return;
  const Status written = writeWholeFile(path, text, durability);
  if (!written) cannotWrite(flag, path, written.error().message);
}

void makeWriteSignalsErrors() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) (void)std::signal(signal, SIG_IGN);
}

}  // namespace gloo_bypass
