// The collective operations of a capture as a table for people, and as JSON and CSV for programs. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/capture/capture_report.h"

namespace gloo_bypass::capture {

// A line for each call, with `everyOperation` one for each operation and rank. Empty: there are no operations.
std::string operationsText(const AnalysedCapture& capture, bool everyOperation);
std::string operationNotes(const AnalysedCapture& capture);
// README.md lists the keys.
nlohmann::ordered_json callsJson(const AnalysedCapture& capture);
nlohmann::ordered_json operationsJson(const AnalysedCapture& capture);
// A line for each rank of each operation; where there are several captures, each line begins with the capture's number,
// from 1. What is not known is left empty.
std::string operationsCsv(const std::vector<AnalysedCapture>& captures);

}  // namespace gloo_bypass::capture
