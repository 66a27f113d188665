// Two hosts, a link each way, and operations for tests.
#pragma once

#include <string>
#include <vector>

#include "tools/simulation/core/conversation.h"
#include "tools/simulation/core/host.h"
#include "tools/simulation/core/link.h"
#include "tools/simulation/core/simulation.h"

namespace gloo_bypass::sim {

struct PathModel {
  LinkModel forth, back;
  std::size_t maxDatagramBytes = 1472;

  static PathModel symmetric(const LinkModel& link, std::size_t maxDatagramBytes) {
    return {link, link, maxDatagramBytes};
  }
};

class Pair {
 public:
  Pair(const PathModel& path, const SessionConfig& config, std::uint64_t seed);

  void connect();
  // Both are kEstablished within `limit`.
  bool connectWithin(Duration limit);
  // Carries `forth` from a to b and `back` from b to a at once; both may be null.
  void observe(Conversation* forth, Conversation* back);
  // Faults of the counters and the memory after an undisturbed run; empty: none.
  std::vector<std::string> audit(const Conversation& forth, const Conversation& back) const;

  Simulation simulation;
  Link linkForth, linkBack;
  Host a, b;

 private:
  const PathModel path_;
  const SessionConfig config_;
};

// The bound on Session::memoryBytes that a configuration guarantees: both buffers, the data that the eager credit lets
// a peer put there, and bookkeeping.
std::size_t memoryBound(const SessionConfig& config, bool longPath);

}  // namespace gloo_bypass::sim
