// Why the system had nothing more to give, in one line.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace gloo_bypass {

// Of a call that failed with `error`; empty: it was for another reason.
inline std::string exhausted(int error) {
  if (error == EMFILE) {
    rlimit limit{};
    (void)::getrlimit(RLIMIT_NOFILE, &limit);
    return "this process has as many descriptors open as it may (RLIMIT_NOFILE is " + std::to_string(limit.rlim_cur) +
           "): raise the limit (ulimit -n)";
  }
  if (error == ENFILE) return "this machine has as many files open as it may (fs.file-max)";
  if (error == ENOMEM || error == ENOBUFS) return "the kernel has no memory for a socket";
  return {};
}

}  // namespace gloo_bypass
