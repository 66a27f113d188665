#include "transport/base/exhausted.h"

#include <sys/resource.h>

#include <cstring>

namespace gloo_bypass {

std::string exhausted(int error) {
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

std::string reasonOf(int error) {
  std::string why = exhausted(error);
  return why.empty() ? std::strerror(error) : why;
}

ErrorCode codeOf(int error) { return exhausted(error).empty() ? ErrorCode::kUnavailable : ErrorCode::kExhausted; }

FailedCall failedCall(const char* call, int error) {
  return {codeOf(error), std::string(call) + ": " + reasonOf(error)};
}

std::string noThread(const std::system_error& error) {
  const std::string why = error.code().message();
  if (error.code().value() != EAGAIN) return "no thread can be started: " + why;
  return "no thread can be started (" + why + "): " + kRaiseThreadLimits;
}

}  // namespace gloo_bypass
