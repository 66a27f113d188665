// DPDK's environment abstraction layer: one a process, started by the first port that needs it, never stopped or
// restarted.
//
// What an application may rely on: starting it changes neither the calling thread's CPU affinity nor any signal
// mask (it runs in a thread of its own that ends; the EAL's own threads block all signals and may run on any CPU the
// caller may), makes no worker threads, and writes nothing to stdout. To stderr go critical messages of DPDK's, and all
// of them where the user's arguments have --log-level.
#pragma once

#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"

namespace gloo_bypass::dpdk {

class Eal {
 public:
  // Any thread. The first call decides the settings; later ones only check that they can live with them. After a failed
  // start every call returns the same error. In a child forked after the start: an error that says so.
  static Status start(const TransportConfig& config);

  // Whether start has been called, with or without success, here or before the fork: a forked child cannot try it
  // again.
  static bool decided();

  // The processors that this thread may run on and DPDK can find in `folder`, sysfs's of processors: "0,1". The error,
  // one line, says what is missing there.
  static Result<std::string> usableCpus(const std::string& folder);

  // " (what the driver said)" of the last error line logged by DPDK on this thread's behalf, or "".
  static std::string lastErrorSuffix();
  static void forgetLastError();
};

}  // namespace gloo_bypass::dpdk
