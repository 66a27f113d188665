// What the settings say about the links between a group's ranks.
#pragma once

#include <string>

#include "collectives/schedule/choices.h"
#include "transport/base/status.h"

namespace gloo_bypass::collectives {

struct Link {
  std::string transport;   // "DPDK", "UDP" or "RDMA"
  bool hasMemory = false;  // between ranks of one host it is memory
  int threads = 0;         // GLOO_BYPASS_THREADS
  // GLOO_BYPASS_CHOICES, _ALGORITHM and _SUM_ORDER.
  ChoiceTable choices;

  // What `transport` (empty: DPDK) and the environment say. kConfiguration: an unknown one, a wrong setting.
  static Result<Link> named(const std::string& transport);
};

}  // namespace gloo_bypass::collectives
