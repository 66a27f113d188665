// The command line of capture_analyser.
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "tools/capture/analysis.h"
#include "tools/capture/capture_report.h"

namespace gloo_bypass::capture {

struct AnalyserOptions {
  std::vector<std::string> files;
  bool join = false;
  std::string filter;
  AnalysisSettings analysis;
  TableOptions table;
  std::string jsonPath, throughputPath, stepsPath, operationsPath;  // empty: none
};

// The options, or text to print (--help, --version). Throws UsageError, one line.
std::variant<AnalyserOptions, std::string> parseAnalyserOptions(int argc, const char* const* argv);

}  // namespace gloo_bypass::capture
