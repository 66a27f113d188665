// Says in one line which resource the system ran out of.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "transport/base/status.h"

namespace gloo_bypass {

// For a call that failed with `error`; empty if no resource ran out.
inline std::string exhausted(int error) {
  if (error == EMFILE || error == ETOOMANYREFS) {
    rlimit limit{};
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    return std::string(error == EMFILE
                           ? "this process has as many descriptors open as it may"
                           : "this user's processes send each other more descriptors at once than one may have") +
           " (RLIMIT_NOFILE is " + std::to_string(limit.rlim_cur) + "): raise the limit (ulimit -n)";
  }
  if (error == ENFILE) return "this machine has as many files open as it may (fs.file-max)";
  if (error == ENOMEM || error == ENOBUFS)
    return "there is no memory left for it, the kernel's or what this process may have (ulimit -v)";
  return {};
}

// For any failed call.
inline std::string reasonOf(int error) {
  std::string why = exhausted(error);
  return why.empty() ? std::strerror(error) : why;
}

// kExhausted if a resource ran out, else kUnavailable.
inline ErrorCode codeOf(int error) {
  return exhausted(error).empty() ? ErrorCode::kUnavailable : ErrorCode::kExhausted;
}

// A system call that has just failed.
struct FailedCall {
  ErrorCode code;
  std::string text;  // "mmap: Cannot allocate memory"
};
inline FailedCall failedCall(const char* call, int error = errno) {
  return {codeOf(error), std::string(call) + ": " + reasonOf(error)};
}

inline constexpr const char* kRaiseThreadLimits =
    "raise the limit of threads (ulimit -u; a container's pids.max) or of memory (ulimit -v)";

// For a std::thread that could not start.
inline std::string noThread(const std::system_error& error) {
  const std::string why = error.code().message();
  if (error.code().value() != EAGAIN) return "no thread can be started: " + why;
  return "no thread can be started (" + why + "): " + kRaiseThreadLimits;
}

}  // namespace gloo_bypass
