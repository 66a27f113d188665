// How a process says who it is. Any thread.
#pragma once

#include <string>

namespace gloo_bypass {

// "rank 1, process 123 on a host"
std::string describeSelf(int rank);
// The same for this host's user: "rank 1, process 123". `rank` as the environment has it, which may be anything; empty:
// none.
std::string describeProcess(const std::string& rank);

}  // namespace gloo_bypass
