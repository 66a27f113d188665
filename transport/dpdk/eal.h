// DPDK's environment abstraction layer. One per process: the first port that needs it starts it; it never stops or
// restarts.
//
// What an application may rely on: the start changes neither the calling thread's CPU affinity nor any signal mask (it
// runs in a thread of its own that ends; the EAL's own threads block all signals and may run on any CPU that the caller
// may use), makes no worker threads, and writes nothing to stdout. DPDK's critical messages go to stderr, or all of
// them if the user's arguments have --log-level.
#pragma once

#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass::dpdk {

class Eal {
 public:
  // Any thread. The first call decides the settings; later ones only check that they are compatible. After a failed
  // start every call returns the same error. In a child forked after the start, the error says so.
  static Status start(const TransportConfig& config);

  // Whether start() was called, successfully or not, here or before the fork: a forked child cannot try it again.
  static bool decided();

  // The processors that this thread may run on and that DPDK can find in `folder` (sysfs): "0,1". The error, one line,
  // says what is missing there.
  static Result<std::string> usableCpus(const std::string& folder);

  // The last error line that DPDK logged for this thread, as " (TEXT)"; "" if none.
  static std::string lastErrorSuffix();
  static void forgetLastError();
};

}  // namespace gloo_bypass::dpdk
