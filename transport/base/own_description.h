// How a process says who it is. Any thread.
#pragma once

#include <string>

namespace gloo_bypass {

// "rank 1, process 123 on a host"
std::string describeSelf(int rank);
// The same for users of this host: "rank 1, process 123". `rank` is the environment's value, unchecked; it may be
// empty.
std::string describeProcess(const std::string& rank);

}  // namespace gloo_bypass
