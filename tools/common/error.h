// What ends a program of tools/ or trainer/. The message is one line: what, where, and what to do. Thrown anywhere,
// caught in main only (run_program.h), which prints it to stderr and exits with its status. Gloo's and libtorch's own
// exceptions end there too.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>

#include "transport/base/printable.h"

namespace gloo_bypass {

// What ran went wrong: a rank failed, a disk is full, a result could not be written.
inline constexpr int kExitFailure = 1;
// Options, environment or an input file were wrong: nothing was measured or trained.
inline constexpr int kExitUsage = 2;

class ProgramError : public std::runtime_error {
 public:
  explicit ProgramError(const std::string& message, int exitStatus = kExitFailure)
      : std::runtime_error(message), exitStatus_(exitStatus) {}
  int exitStatus() const { return exitStatus_; }

 private:
  int exitStatus_;
};
// What the user gave is wrong.
class UsageError : public ProgramError {
 public:
  explicit UsageError(const std::string& message) : ProgramError(message, kExitUsage) {}
};

// What whoever starts anew would meet again: a full disk, a run that has diverged.
class LastingError : public ProgramError {
 public:
  using ProgramError::ProgramError;
};

// The status of a program that `error` ends: kExitFailure for what is not ours.
inline int exitStatusOf(const std::exception& error) {
  const auto* const ours = dynamic_cast<const ProgramError*>(&error);
  return ours != nullptr ? ours->exitStatus() : kExitFailure;
}

// Gloo, libtorch and the C++ library put line breaks into messages, peers and files whatever they like; ours are one
// line of text.
inline std::string oneLine(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return printable(text);
}

// What cannot be written there, its reader gone or its disk full, is lost: it must not end the program in another way.
inline void writeToStderr(const std::string& text) noexcept { (void)std::fputs(text.c_str(), stderr); }

// "PROGRAM: MESSAGE", one line there, whatever bytes the message has.
inline void complain(const std::string& program, const std::string& message) {
  writeToStderr(program + ": " + oneLine(message) + "\n");
}

}  // namespace gloo_bypass
