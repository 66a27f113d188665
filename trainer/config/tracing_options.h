// What --trace, --measure-peak and --peak-flops ask for. None of them decides a number that a run computes.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

struct TracingOptions {
  std::string tracePath;  // Chrome trace of all ranks, which rank 0 writes at the end; empty: none
  bool measurePeak = false;
  double peakFlopsPerSecond = 0;  // of one rank, as the user says; 0: not said
};

void addTracingOptions(CLI::App& app, TracingOptions& options);

// What is wrong with the options together; empty if nothing.
std::string crossCheck(const TracingOptions& options);

// What ranks must have in common although it decides no numbers: the exchanges at the start and at the end.
nlohmann::json agreement(const TracingOptions& options);

}  // namespace gloo_bypass::trainer
