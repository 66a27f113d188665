// Results of simulated all-reduces: a table for people, JSON and CSV for programs. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/simulation/simulation_options.h"

namespace gloo_bypass::sim {

// The settings that all rows share, and the table's head.
std::string tableHead(const SimulationOptions& options);
std::string tableRow(const RingRunResult& result, std::uint64_t bytes);
// A line to go under the table: edges, losses by cause, cost.
std::string tableFoot(const std::vector<RingRunResult>& results);

nlohmann::ordered_json reportJson(const SimulationOptions& options, const std::vector<RingRunResult>& results);
std::string reportCsv(const std::vector<RingRunResult>& results);

}  // namespace gloo_bypass::sim
