// Errors that end a program of tools/ or trainer/. The message is one line: what, where, and what to do. Any code
// throws them; only main catches them (run_program.h), prints the message to stderr and exits with the error's status.
// It treats Gloo's and libtorch's exceptions alike.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

#include "transport/base/printable.h"
#include "transport/base/status.h"

namespace gloo_bypass {

// The run failed: a rank failed, a disk is full, a result could not be written.
inline constexpr int kExitFailure = 1;
// Options, environment or an input file are wrong; the program measured and trained nothing.
inline constexpr int kExitUsage = 2;

class ProgramError : public std::runtime_error {
 public:
  explicit ProgramError(const std::string& message, int exitStatus = kExitFailure)
      : std::runtime_error(message), exitStatus_(exitStatus) {}
  int exitStatus() const { return exitStatus_; }

 private:
  int exitStatus_;
};
// The user's input is wrong.
class UsageError : public ProgramError {
 public:
  explicit UsageError(const std::string& message) : ProgramError(message, kExitUsage) {}
};

// A restart would meet it again: a full disk, a run that has diverged.
class LastingError : public ProgramError {
 public:
  using ProgramError::ProgramError;
};

// The exit status for `error`; kExitFailure if it is not a ProgramError.
inline int exitStatusOf(const std::exception& error) {
  const auto* const ours = dynamic_cast<const ProgramError*>(&error);
  return ours != nullptr ? ours->exitStatus() : kExitFailure;
}

// `text` on one line. Messages of Gloo, libtorch and the C++ library may have line breaks; names of peers and files may
// have any bytes.
inline std::string oneLine(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return printable(text);
}

// Text that cannot be written (the reader has gone, the disk is full) is dropped: it must not change how the program
// ends.
inline void writeToStderr(const std::string& text) noexcept { (void)std::fputs(text.c_str(), stderr); }

// Writes "PROGRAM: MESSAGE" to stderr, as one line.
inline void complain(const std::string& program, const std::string& message) {
  writeToStderr(program + ": " + oneLine(message) + "\n");
}

// The value of a Result, or its error as an exception.
template <typename Failure = ProgramError, typename Value>
Value valueOrThrow(Result<Value> result) {
  if (!result) throw Failure(oneLine(result.error().message));
  return std::move(result).value();
}

}  // namespace gloo_bypass
