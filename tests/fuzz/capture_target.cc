#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz_target.h"
#include "tools/capture/capture_file.h"
#include "tools/capture/capture_report.h"
#include "tools/capture/operation_report.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {

void fuzzCapture(std::span<const std::uint8_t> input) {
  if (input.empty()) return;
  std::vector<std::uint8_t> bytes(input.begin(), input.end());
  auto file = capture::CaptureFile::open(::fmemopen(bytes.data(), bytes.size(), "rb"), "input", "");
  if (!file) return;
  capture::AnalysedCapture analysed{
      {"input"}, file.value().linkName(), file.value().snapLength(), "", {}, capture::Analysis({}), {}};
  std::uint64_t frames = 0;
  while (const auto captured = file.value().next()) {
    const auto frame = capture::dissect(file.value().linkLayer(), captured->bytes, captured->originalLength);
    GLOO_BYPASS_CHECK(frame.payloadBytes <= frame.wireBytes);
    analysed.analysis.add(captured->time, frame);
    GLOO_BYPASS_CHECK(++frames <= bytes.size());
  }
  analysed.finish();
  std::uint64_t sum = 0;
  for (const std::uint64_t kind : analysed.analysis.totals().bytesOfKind) sum += kind;
  GLOO_BYPASS_CHECK(sum == analysed.analysis.totals().bytes);
  std::uint64_t ofOperations = 0;
  for (const auto& operation : analysed.operations.all) ofOperations += operation.totals.bytes;
  GLOO_BYPASS_CHECK(ofOperations <= sum);
  (void)capture::captureTable(analysed, {.everyStep = true, .everyOperation = true});
  (void)capture::captureJson(analysed);
  (void)capture::operationsCsv({analysed});
}

}  // namespace gloo_bypass::fuzz
