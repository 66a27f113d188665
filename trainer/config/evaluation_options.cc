#include "trainer/config/evaluation_options.h"

#include <CLI/CLI.hpp>

namespace gloo_bypass::trainer {

void addEvaluationOptions(CLI::App& app, EvaluationOptions& o) {
  const char* group = "Evaluation";
  auto* samples = app.add_option("--eval-samples", o.samples,
                                 "hold the last N samples of the text out of training, and report loss and "
                                 "perplexity on them when training has ended")
                      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
                      ->group(group);
  app.add_option("--eval-data", o.dataPath, "report them on this text instead, and train on all samples")
      ->type_name("FILE")
      ->group(group)
      ->excludes(samples);
  app.add_option("--eval-every", o.every, "steps between evaluations (0: at the end only)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group(group);
}

std::string crossCheck(const EvaluationOptions& o) {
  if (o.every > 0 && !o.isUsed()) {
    return "--eval-every needs text to evaluate on: --eval-samples N or --eval-data FILE";
  }
  return {};
}

}  // namespace gloo_bypass::trainer
