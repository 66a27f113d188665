// What a run found, as nccl-tests' table and as JSON. Pure: numbers in, text out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/all_reduce_perf/perf_options.h"

namespace gloo_bypass {

// One round of one transport, as one rank saw it.
struct RankSample {
  double wallSeconds = 0;  // of all iterations together
  double cpuSeconds = 0;   // of all threads of the rank meanwhile
  std::vector<std::int64_t> iterationNs;
  // With --compute, where the times above are of the calls alone: as many rounds of computing with an all-reduce at the
  // end of each, and without.
  double roundsSeconds = 0, roundsAloneSeconds = 0;
  // And when each call began and ended, by the machine's monotonic clock.
  std::vector<std::int64_t> beginNs, endNs;
};
// One size of one transport, as one rank saw it.
struct RankMeasurement {
  std::vector<RankSample> rounds;
  std::uint64_t wrong = 0;
};
// As rank 0 gets them from the others.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankSample, wallSeconds, cpuSeconds, iterationNs, roundsSeconds, roundsAloneSeconds,
                                   beginNs, endNs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankMeasurement, rounds, wrong)

struct TransportResult {
  std::string transport;
  double timeUs = 0, p50Us = 0, p99Us = 0, minUs = 0, maxUs = 0;
  std::vector<double> roundUs;         // mean over iterations and ranks of each round
  std::vector<double> roundSlowestUs;  // mean over iterations of each round, of its slowest rank
  double algbwGBs = 0, busbwGBs = 0;   // from timeUs
  std::optional<std::uint64_t> wrong;  // none: not checked
  double ratio = 1;                    // p50 of the first transport / p50 of this one; 0 if unknown
  double ratioOfMeans = 1;             // the same of timeUs
  std::vector<double> cpuSeconds;      // of each rank, all rounds
  double cpuPercent = 0;               // of a core, mean over ranks
  // With --compute: a round of computing with an all-reduce and without, means, and the difference.
  double roundWithUs = 0, roundAloneUs = 0, addsUs = 0;
  // From the moment at which the last rank had begun a call until each rank's had ended: what is left of the call
  // without waiting for that rank. None where the ranks' clocks are not one.
  std::optional<double> afterLastP50Us, afterLastP99Us;
};
// The first calls of one transport, each a mean over the ranks, in their order.
struct FirstCalls {
  std::string transport;
  std::uint64_t bytes = 0;
  std::vector<double> callUs;
};
struct SizeResult {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::vector<TransportResult> transports;
};

// What nccl-tests' PERFORMANCE page defines for an all-reduce of `bytes` over `ranks`. GB means 1e9 bytes.
struct Bandwidth {
  double algorithmGBs = 0;  // bytes / time
  double busGBs = 0;        // algorithmGBs * 2 (ranks - 1) / ranks
};
// All zero if `seconds` is not positive.
Bandwidth allReduceBandwidth(std::size_t bytes, double seconds, int ranks);

// byTransport[t][r]: rank r's measurement of options.transports[t].
SizeResult summarize(const PerfOptions& options, std::uint64_t bytes,
                     const std::vector<std::vector<RankMeasurement>>& byTransport);
nlohmann::json toJson(const PerfOptions& options, const SizeResult& result);

// `ofRanks`: nanoseconds of each call, by rank; all have as many.
FirstCalls summarizeFirstCalls(const std::string& transport, std::uint64_t bytes,
                               const std::vector<std::vector<std::int64_t>>& ofRanks);
nlohmann::json toJson(const FirstCalls& calls);

// Mean of the bus bandwidths of all sizes, one for each transport, as nccl-tests' last line.
std::vector<double> averageBusBandwidth(std::span<const SizeResult> results);
std::uint64_t totalWrong(std::span<const SizeResult> results);

// Text, each ending in a line break. `ranks` are what rank_session.cc gathers of each rank.
std::string headerText(const PerfOptions& options, const nlohmann::json& ranks);
std::string columnsText(const PerfOptions& options);
std::string rowsText(const PerfOptions& options, const SizeResult& result);
std::string footerText(const PerfOptions& options, std::span<const SizeResult> results);
std::string firstCallsText(const FirstCalls& calls);
std::string idleText(const nlohmann::json& idle);

}  // namespace gloo_bypass
