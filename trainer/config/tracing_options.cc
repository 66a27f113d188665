#include "trainer/config/tracing_options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gloo_bypass::trainer {

void addTracingOptions(CLI::App& app, TracingOptions& o) {
  const char* group = "Where the time goes";
  app.add_option("--trace", o.tracePath,
                 "Chrome trace of every step and bucket of all ranks, for Perfetto or chrome://tracing; "
                 "rank 0 writes it when training has ended")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--measure-peak", o.measurePeak,
               "measure a matrix product of the model's shape on all ranks at once before the "
               "first step, and report mfu in per cent of it")
      ->group(group);
  app.add_option("--peak-flops", o.peakFlopsPerSecond,
                 "report mfu in per cent of X floating-point operations a second and rank "
                 "(0: no mfu)")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e18))
      ->group(group);
}

std::string crossCheck(const TracingOptions& o) {
  if (o.measurePeak && o.peakFlopsPerSecond > 0) {
    return "--measure-peak and --peak-flops exclude each other: mfu is in per cent of one peak";
  }
  return {};
}

nlohmann::json agreement(const TracingOptions& o) {
  return {{"trace", !o.tracePath.empty()}, {"measure_peak", o.measurePeak}, {"peak_flops", o.peakFlopsPerSecond}};
}

}  // namespace gloo_bypass::trainer
