// A file without a place in the file system, for targets that read files.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <string>

#include "transport/base/check.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"

namespace gloo_bypass::fuzz {

class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("fuzzed", MFD_CLOEXEC)) {
    GLOO_BYPASS_CHECK(file_ && ::fchmod(file_.get(), 0600) == 0);
  }
  // For other opens of it.
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }
  void hold(std::span<const std::uint8_t> bytes) {
    GLOO_BYPASS_CHECK(::ftruncate(file_.get(), 0) == 0);
    GLOO_BYPASS_CHECK(::pwrite(file_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  const FileDescriptor file_;
};

// An error's text must be one line that a terminal can take.
inline void checkLine(const std::string& line) { GLOO_BYPASS_CHECK(!line.empty() && printable(line) == line); }

}  // namespace gloo_bypass::fuzz
