// fabric_simulation: ring all-reduces over a described fabric in virtual time. See README.md of this folder.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "tools/common/error.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "tools/simulation/simulation_report.h"
#include "tools/simulation/stop_signals.h"
#include "transport/base/seconds.h"
#include "transport/process/json_text.h"

namespace gloo_bypass::sim {
namespace {

constexpr std::chrono::milliseconds kBetweenProgress{500};

int complain(const std::string& message, int status) {
  gloo_bypass::complain("fabric_simulation", message);
  return status;
}

// One line on a terminal, written over and over; nothing elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(bool wanted) : shown_(wanted && ::isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::size_t ranks, const RingProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now < next_) return;
    next_ = now + kBetweenProgress;
    writeToStderr(fmt::format("\r\033[K{} ranks: {:.1f} %, {:.4g} s of virtual time, {:.1f} million events", ranks,
                              100 * progress.share, secondsOf(progress.elapsed),
                              static_cast<double>(progress.events) * 1e-6));
    (void)std::fflush(stderr);
    written_ = true;
  }
  void clear() {
    if (written_) writeToStderr("\r\033[K");
    written_ = false;
  }

 private:
  const bool shown_;
  bool written_ = false;
  std::chrono::steady_clock::time_point next_{};
};

enum class Writing : std::uint8_t { kSoFar, kLast };

// What is no file (/dev/stdout, a pipe) gets the last results only.
bool isForLastOnly(const std::string& path) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  return kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::not_found;
}

void writeResults(const SimulationOptions& options, const std::vector<RingRunResult>& results, Writing writing) {
  const auto write = [&](const char* flag, const std::string& path, const std::string& text) {
    if (writing == Writing::kLast || !isForLastOnly(path)) writeResult(flag, path, text);
  };
  write("--json", options.jsonPath, jsonText(reportJson(options, results)) + "\n");
  write("--csv", options.csvPath, reportCsv(results));
}

int simulate(const SimulationOptions& options) {
  // All descriptions are looked at before the first is run.
  std::vector<fabric::Description> fabrics;
  for (const std::size_t ranks : options.ranks.empty() ? std::vector<std::size_t>{0} : options.ranks) {
    fabrics.push_back(describedFabric(options, ranks));
  }
  handleStopSignals();
  int status = 0;
  std::vector<RingRunResult> results;
  // Before minutes of work, whether they can be written at all.
  writeResults(options, results, Writing::kSoFar);
  fmt::print("{}", tableHead(options));
  for (const fabric::Description& fabric : fabrics) {
    (void)std::fflush(stdout);
    ProgressLine line(!options.quiet);
    results.push_back(runRing(fabric, options.run, [&](const RingProgress& progress) {
      line.show(fabric.hosts.size(), progress);
      return goOn();
    }));
    line.clear();
    const RingRunResult& result = results.back();
    fmt::print("{}", tableRow(result, options.run.bytes));
    if (result.end == RingRunEnd::kFailed)
      status = complain(fmt::format("{} ranks: {}", result.ranks, result.error), kExitFailure);
    if (result.end == RingRunEnd::kInterrupted || !goOn()) {
      status = complain(fmt::format("interrupted: {} of {} numbers of ranks are done",
                                    results.size() - (result.end != RingRunEnd::kDone), fabrics.size()),
                        kInterrupted);
      break;
    }
    // What there is, in case that this process is killed.
    writeResults(options, results, Writing::kSoFar);
  }
  writeResults(options, results, Writing::kLast);  // before the table's end: nobody may be there to read that
  fmt::print("{}", tableFoot(results));
  if (std::fflush(stdout) != 0 && status == 0) throw ProgramError("standard output could not be written");
  return status;
}

}  // namespace
}  // namespace gloo_bypass::sim

int main(int argc, char** argv) {
  namespace sim = gloo_bypass::sim;
  return gloo_bypass::runProgram("fabric_simulation", sim::parseSimulationOptions, sim::simulate, argc, argv);
}
