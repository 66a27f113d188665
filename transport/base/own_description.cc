#include "transport/base/own_description.h"

#include <unistd.h>

#include "transport/base/printable.h"

namespace gloo_bypass {

std::string describeSelf(int rank) {
  const std::string self = "rank " + std::to_string(rank) + ", process " + std::to_string(getpid());
  char host[65] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? self + " on " + host : self;
}

std::string describeProcess(const std::string& rank) {
  return (rank.empty() ? "" : "rank " + printable(rank) + ", ") + "process " + std::to_string(getpid());
}

}  // namespace gloo_bypass
