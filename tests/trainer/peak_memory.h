// How much memory reading something takes at most.
#pragma once

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "tools/common/error.h"

namespace gloo_bypass::trainer::testing {

inline size_t peakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::stoul(line.substr(line.find_first_of("0123456789"))) * 1024;
    }
  }
  return 0;
}

// In a separate process, so that it cannot reuse memory that was freed before. A ProgramError ends `read` in good
// order.
inline size_t peakMemoryOf(const std::function<void()>& read) {
  ::malloc_trim(0);
  int toHere[2];
  if (::pipe(toHere) != 0) {
    return std::numeric_limits<size_t>::max();
  }
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      throw UsageError("what the first exception takes is not the reader's");
    } catch (const ProgramError&) {
    }
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak is what is used now
    const size_t before = peakMemory();
    try {
      read();
    } catch (const ProgramError&) {
    }
    const size_t bytes = peakMemory() - before;
    ::_exit(::write(toHere[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
  }
  size_t bytes = std::numeric_limits<size_t>::max();
  EXPECT_EQ(::read(toHere[0], &bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
  ::close(toHere[0]);
  ::close(toHere[1]);
  ::waitpid(child, nullptr, 0);
  return bytes;
}

// A text of about `bytes`: `begin`, then `each` again and again with a number of its own where it has {i}, then `end`.
inline std::string longList(size_t bytes, const std::string& begin, const std::string& each, const std::string& end) {
  std::string text = begin;
  for (size_t i = 0; text.size() < bytes; ++i) {
    const size_t at = each.find("{i}");
    text += at == std::string::npos ? each : each.substr(0, at) + std::to_string(i) + each.substr(at + 3);
    text += ',';
  }
  text.back() = ' ';
  return text + end;
}

}  // namespace gloo_bypass::trainer::testing
