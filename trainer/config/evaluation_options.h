// What --eval-samples, --eval-data and --eval-every ask for: the loss on text that is not trained on. Of them only the
// first decides what a run computes, by leaving samples out.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

struct EvaluationOptions {
  int64_t samples = 0;   // the last ones of the text, held out of training; 0: none
  std::string dataPath;  // another text, all of it; empty: none
  int64_t every = 0;     // steps; 0: at the end only

  bool isUsed() const { return samples > 0 || !dataPath.empty(); }
};

void addEvaluationOptions(CLI::App& app, EvaluationOptions& options);
// What is wrong with the options together, one line; empty: nothing.
std::string crossCheck(const EvaluationOptions& options);

}  // namespace gloo_bypass::trainer
