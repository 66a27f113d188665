// tune: measures which algorithm of gloo-bypass's own collectives is the fastest for each size and number of ranks, and
// writes the table that GLOO_BYPASS_CHOICES names. See README.md beside it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tools/all_reduce_perf/device_factory.h"
#include "tools/all_reduce_perf/rank_runs.h"
#include "tools/common/command_line.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "tools/common/version.h"
#include "tools/tune/tune_session.h"

namespace gloo_bypass {
namespace {

std::variant<TuneOptions, std::string> parse(int argc, const char* const* argv) {
  TuneOptions options;
  std::vector<std::string> transports = transportNames();
  std::erase_if(transports, std::not_fn(hasOwnCollectives));
  CLI::App app(
      "Measures which algorithm of gloo-bypass's own collectives is the fastest for each kind of operation, size and "
      "number of ranks, and writes the table that GLOO_BYPASS_CHOICES names. Run it with the ranks' own places: as "
      "many as programs will have, one on each host.");
  app.set_version_flag("--version", "tune " + buildVersion());
  app.option_defaults()->always_capture_default();
  app.add_option("--ranks", options.ranks,
                 "start so many ranks here; without it this is one rank, and RANK, WORLD_SIZE, MASTER_ADDR and "
                 "MASTER_PORT say which")
      ->check(CLI::Range(2, 256));
  app.add_option("--transport", options.transport, "what ranks are connected by")->check(CLI::IsMember(transports));
  app.add_option("--groups", options.groups, "numbers of ranks to measure; default: powers of two, and all")
      ->delimiter(',')
      ->default_str("");
  app.add_option("-b,--minbytes", options.minBytes, "least size")->transform(CLI::AsSizeValue(false));
  app.add_option("-e,--maxbytes", options.maxBytes, "greatest size")->transform(CLI::AsSizeValue(false));
  app.add_option("-f,--stepfactor", options.factor, "from size to size")->check(CLI::Range(2, 1024));
  app.add_option("--rounds", options.rounds, "over all algorithms in turn")->check(CLI::Range(1, 1000));
  app.add_option("--tolerance", options.tolerance, "a change of algorithm must gain more than this part")
      ->check(CLI::Range(0.0, 10.0));
  app.add_option("-o,--output", options.outputPath, "the table's file; none: standard output");
  app.add_option("--store-dir", options.storeDirectory, "without --ranks: they meet in this folder, not at MASTER_ADDR")
      ->excludes("--ranks");
  app.add_option("--timeout", options.timeoutSeconds, "seconds for meeting, for connecting and for one operation")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--deadline", options.deadlineSeconds,
                 "seconds for all; without --ranks: that a rank waits for smaller groups and for the end")
      ->check(CLI::Range(1.0, 1e7));
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 34;
  if (options.minBytes == 0 || options.minBytes > options.maxBytes || options.maxBytes > kMostBytes) {
    throw UsageError("-b and -e: sizes from 1 byte to 16 GiB, the least first");
  }
  return options;
}

int run(const TuneOptions& options) {
  checkWritable("--output", options.outputPath);
  const RunOptions runs{.program = "tune",
                        .ranks = options.ranks,
                        .storeDirectory = options.storeDirectory,
                        .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeoutSeconds * 1000)),
                        .deadline = std::chrono::duration<double>(options.deadlineSeconds)};
  const RankBody body = [&](int rank, int size, const gloo_version::StorePointer& store) {
    return tuneAsRank(options, rank, size, store);
  };
  const auto report = options.ranks > 0 ? std::optional(runRanks(runs, body)) : runGivenRank(runs, body);
  if (!report) return 0;
  const auto choices = nlohmann::json::parse(report->at("choices").get<std::string>()).dump(1) + "\n";
  if (options.outputPath.empty()) {
    fmt::print("{}", choices);
    return 0;
  }
  // Before the table: nobody may be there to read that.
  writeResult("--output", options.outputPath, choices, Durability::kDurable);
  fmt::print("{:<15} {:>5} {:>12} {:<20} {:>12}\n{}", "operation", "ranks", "bytes", "algorithm", "us",
             report->at("table").get<std::string>());
  return 0;
}

}  // namespace
}  // namespace gloo_bypass

int main(int argc, char** argv) {
  return gloo_bypass::runProgram("tune", gloo_bypass::parse, gloo_bypass::run, argc, argv);
}
