// An analysed capture as a table for people, and as JSON and CSV for programs. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/capture/analysis.h"
#include "tools/capture/capture_file.h"
#include "tools/capture/operations.h"

namespace gloo_bypass::capture {

struct AnalysedCapture {
  std::vector<std::string> files;  // read one after the other as one capture
  std::string link;
  std::uint64_t snapLength = 0;
  std::string filter;
  std::vector<std::pair<std::string, CaptureFault>> faults;  // by file
  Analysis analysis;
  Operations operations;  // once all is read

  // After the last frame.
  void finish();
};

struct TableOptions {
  bool everyStep = false, everyOperation = false;  // a line for each
};
std::string captureTable(const AnalysedCapture& capture, const TableOptions& options);
// README.md lists the keys.
nlohmann::ordered_json captureJson(const AnalysedCapture& capture);
// A line for each interval; where there are several captures, each line begins with the capture's number, from 1.
std::string throughputCsv(const std::vector<AnalysedCapture>& captures);
// A line for each step, likewise; what an incomplete one has not is left empty.
std::string stepsCsv(const std::vector<AnalysedCapture>& captures);
// One line, for stderr.
std::string faultLine(const std::string& file, const CaptureFault& fault);

}  // namespace gloo_bypass::capture
