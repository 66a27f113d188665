// capture_analyser: figures of distributed training from captures of its traffic. See README.md here.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/capture/analyser_options.h"
#include "tools/capture/capture_file.h"
#include "tools/capture/capture_report.h"
#include "tools/capture/operation_report.h"
#include "tools/common/error.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "transport/process/json_text.h"

namespace gloo_bypass::capture {
namespace {

// Beside kExitFailure: a result could not be written.
enum ExitCode : int { kAllRead = 0, kNoCapture = kExitUsage, kDamaged = 3 };

void complain(const std::string& message) { gloo_bypass::complain("capture_analyser", message); }

// All frames of one file into `capture`.
void read(CaptureFile& file, AnalysedCapture& capture) {
  capture.link = file.linkName();
  capture.snapLength = std::max(capture.snapLength, file.snapLength());
  while (const auto captured = file.next()) {
    const DissectedFrame frame = dissect(file.linkLayer(), captured->bytes, captured->originalLength);
    if (captured->passesFilter || capture.analysis.isMarker(frame)) capture.analysis.add(captured->time, frame);
  }
  if (file.fault()) capture.faults.emplace_back(capture.files.back(), *file.fault());
}

void writeResults(const AnalyserOptions& options, const std::vector<AnalysedCapture>& captures) {
  if (!options.jsonPath.empty()) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const AnalysedCapture& capture : captures) all.push_back(captureJson(capture));
    const nlohmann::ordered_json report{{"schema", "gloo-bypass/capture/1"}, {"captures", all}};
    writeResult("--json", options.jsonPath, jsonText(report) + "\n");
  }
  writeResult("--csv-throughput", options.throughputPath, throughputCsv(captures));
  writeResult("--csv-steps", options.stepsPath, stepsCsv(captures));
  if (!options.operationsPath.empty()) {
    writeResult("--csv-operations", options.operationsPath, operationsCsv(captures));
  }
}

// All of the files that can be read. A line for each fault; the exit status that they make.
ExitCode readAll(const AnalyserOptions& options, std::vector<AnalysedCapture>& captures) {
  ExitCode code = kAllRead;
  for (const std::string& path : options.files) {
    auto file = CaptureFile::open(path, options.filter);
    if (!file) {
      complain(file.error().message);
      code = kNoCapture;
      continue;
    }
    if (captures.empty() || !options.join)
      captures.push_back({{}, "", 0, options.filter, {}, Analysis(options.analysis), {}});
    AnalysedCapture& capture = captures.back();
    if (!capture.files.empty() && capture.link != file.value().linkName()) {
      complain(fmt::format("{}: its frames begin with {}, those of {} with {}: they cannot be joined", path,
                           file.value().linkName(), capture.files.front(), capture.link));
      code = kNoCapture;
      continue;
    }
    capture.files.push_back(path);
    read(file.value(), capture);
    if (!file.value().fault()) continue;
    complain(faultLine(path, *file.value().fault()));
    if (code == kAllRead) code = kDamaged;
  }
  return code;
}

int analyse(const AnalyserOptions& options) {
  checkWritable("--json", options.jsonPath);
  checkWritable("--csv-throughput", options.throughputPath);
  checkWritable("--csv-steps", options.stepsPath);
  checkWritable("--csv-operations", options.operationsPath);
  std::vector<AnalysedCapture> captures;
  const ExitCode code = readAll(options, captures);
  if (captures.empty()) return code;
  for (AnalysedCapture& capture : captures) capture.finish();
  writeResults(options, captures);  // before the tables: who reads those may leave early
  for (std::size_t i = 0; i < captures.size(); ++i) {
    fmt::print("{}{}", i > 0 ? "\n" : "", captureTable(captures[i], options.table));
  }
  if (std::fflush(stdout) != 0) throw ProgramError("standard output could not be written");
  return code;
}

}  // namespace
}  // namespace gloo_bypass::capture

int main(int argc, char** argv) {
  namespace capture = gloo_bypass::capture;
  return gloo_bypass::runProgram("capture_analyser", capture::parseAnalyserOptions, capture::analyse, argc, argv);
}
