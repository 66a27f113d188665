// all_reduce_perf: how fast Gloo's all-reduce is over one transport or several. See README.md beside it.
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/all_reduce_perf/perf_options.h"
#include "tools/all_reduce_perf/perf_report.h"
#include "tools/all_reduce_perf/rank_runs.h"
#include "tools/all_reduce_perf/rank_session.h"
#include "tools/common/error.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "transport/process/json_text.h"

namespace gloo_bypass {
namespace {

void complain(const std::string& message) { gloo_bypass::complain("all_reduce_perf", message); }

RunOptions runOptions(const PerfOptions& options) {
  return {.program = "all_reduce_perf",
          .ranks = static_cast<int>(options.ranks),
          .storeDirectory = options.storeDirectory,
          .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeoutSeconds * 1000)),
          .deadline = std::chrono::duration<double>(options.deadlineSeconds)};
}

RankBody bodyOf(const PerfOptions& options) {
  return [&options](int rank, int size, const gloo_version::StorePointer& store) {
    return RankSession(options, rank, size, store).run();
  };
}

// Exit status of a finished run.
int conclude(const PerfOptions& options, const nlohmann::json& report) {
  writeResult("--json", options.jsonPath, jsonText(report, 2) + "\n", Durability::kDurable);
  const auto wrong = report.value("wrong_total", std::uint64_t{0});
  if (wrong == 0) return 0;
  complain(fmt::format("{} elements were wrong", wrong));
  return kExitFailure;
}

int runRanksHere(const PerfOptions& options) {
  if (options.idleSeconds <= 0) return conclude(options, runRanks(runOptions(options), bodyOf(options)));
  // A transport's threads may outlive its devices: each transport is measured in processes of its own.
  nlohmann::json report;
  for (const std::string& transport : options.transports) {
    PerfOptions one = options;
    one.transports = {transport};
    nlohmann::json part = runRanks(runOptions(one), bodyOf(one));
    if (report.is_null())
      report = std::move(part);
    else
      report["idle"].push_back(part["idle"].at(0));
  }
  report["parameters"] = toJson(options);
  return conclude(options, report);
}

int run(const PerfOptions& options) {
  checkWritable("--json", options.jsonPath);
  if (options.ranks > 0) return runRanksHere(options);
  const auto report = runGivenRank(runOptions(options), bodyOf(options));
  return report ? conclude(options, *report) : 0;
}

}  // namespace
}  // namespace gloo_bypass

int main(int argc, char** argv) {
  return gloo_bypass::runProgram("all_reduce_perf", gloo_bypass::parseCommandLine, gloo_bypass::run, argc, argv);
}
