// The command line of fabric_simulation.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/simulation/ring_run.h"

namespace gloo_bypass::sim {

struct SimulationOptions {
  std::string configPath;
  std::vector<fabric::DescriptionFlag> flags;
  std::vector<std::size_t> ranks;  // empty: as many as the description has hosts
  std::size_t sites = 0;           // 0: as described
  std::string loss;                // of every edge; empty: as described
  RingRunSettings run;
  std::string jsonPath, csvPath;  // empty: none
  bool quiet = false;             // no progress
};

// The options, or text to print (--help, --version). Throws UsageError, one line.
std::variant<SimulationOptions, std::string> parseSimulationOptions(int argc, const char* const* argv);

// The description of a fabric for so many ranks (0: its own number). Throws UsageError, one line.
fabric::Description describedFabric(const SimulationOptions& options, std::size_t ranks);

// "auto", "fixed", "swift", "bbr"
std::string congestionControlName(CongestionControl control);
// "auto", "off", "on"
std::string repairModeName(Repair::Mode mode);

}  // namespace gloo_bypass::sim
