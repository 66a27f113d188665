// Says in one line which resource the system ran out of.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "transport/base/status.h"

namespace gloo_bypass {

// For a call that failed with `error`; empty if no resource ran out.
std::string exhausted(int error);

// For any failed call.
std::string reasonOf(int error);

// kExhausted if a resource ran out, else kUnavailable.
ErrorCode codeOf(int error);

// A system call that has just failed.
struct FailedCall {
  ErrorCode code;
  std::string text;  // "mmap: Cannot allocate memory"
};
FailedCall failedCall(const char* call, int error = errno);

inline constexpr const char* kRaiseThreadLimits =
    "raise the limit of threads (ulimit -u; a container's pids.max) or of memory (ulimit -v)";

// For a std::thread that could not start.
std::string noThread(const std::system_error& error);

}  // namespace gloo_bypass
