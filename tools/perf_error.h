// What ends a program of tools/. The message is one line: what, where, and what to do. Thrown anywhere, caught in main only
// (run_program.h), which prints it to stderr and exits with kExitFailure or kExitUsage. Gloo's own exceptions end there too.
#pragma once

#include <stdexcept>
#include <string>

namespace gloo_bypass {

inline constexpr int kExitFailure = 1;  // a rank failed, elements were wrong, or a result could not be written
inline constexpr int kExitUsage = 2;    // the command line was wrong; nothing was started

struct PerfError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct UsageError : PerfError {
  using PerfError::PerfError;
};

// Gloo and the C++ library put line breaks into messages; ours are one line.
inline std::string oneLine(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace gloo_bypass
