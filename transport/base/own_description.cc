#include "transport/base/own_description.h"

#include <unistd.h>

namespace gloo_bypass {

std::string describeSelf(int rank) {
  const std::string self = "rank " + std::to_string(rank) + ", process " + std::to_string(getpid());
  char host[65] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? self + " on " + host : self;
}

}  // namespace gloo_bypass
