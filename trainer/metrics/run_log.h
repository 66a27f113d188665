// What a run reports: a JSON line for each event (trainer/README.md, "Metrics"), the progress bar, and the lines at its
// end. One per rank; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/config/options.h"
#include "trainer/files/file_io.h"
#include "trainer/metrics/metrics.h"
#include "trainer/metrics/progress.h"

namespace gloo_bypass::trainer {

class RunLog {
 public:
  RunLog(const Options& options, int rank);

  // Opens the file that --metrics names for this rank, if it does. Call it once the run can begin: it replaces an
  // earlier run's results unless this one `continues` them. `generation`: of an elastic run, whose records repeat
  // steps. `common`: fields of the start and of the
  // summary, besides processor and commit.
  void open(bool continues, std::optional<int64_t> generation, nlohmann::json common);
  void writeStart(const nlohmann::json& fields);
  void write(const char* event, nlohmann::json record);
  void writeStep(const StepMetrics& metrics);
  // The summary has the last one's fields.
  void writeEvaluation(int64_t step, const nlohmann::json& result);
  // Lines for people too, from rank 0, unless records go to standard output. `fields`: besides the steps' medians.
  void writeSummary(const nlohmann::json& fields);

  // From here to endProgress(), on rank 0.
  void beginProgress(int64_t firstStep, int64_t lastStep);
  void endProgress() { progress_.reset(); }

 private:
  const Options& options_;
  const int rank_;
  MetricsSummary summary_;
  nlohmann::json common_, evaluated_ = nlohmann::json::object();
  std::optional<int64_t> generation_;
  std::optional<LineWriter> lines_;
  std::optional<ProgressBar> progress_;
};

}  // namespace gloo_bypass::trainer
