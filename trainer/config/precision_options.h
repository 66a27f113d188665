// In how many bits parameters, gradients and arithmetic are, and by what the loss is scaled: the flags.
//
// Pure; no libtorch.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

enum class Precision { kFloat32, kFloat64, kBFloat16, kFloat16 };
const char* name(Precision precision);

struct PrecisionOptions {
  Precision type = Precision::kFloat32;
  std::string lossScale;             // "dynamic", "off" or a number; empty: dynamic for fp16, off for the others
  double initialLossScale = 65536;   // of a dynamic one; this and the next are torch.cuda.amp.GradScaler's defaults
  int64_t lossScaleInterval = 2000;  // steps without overflow after which a dynamic one is doubled

  // Parameters in 16 bits, fp32 masters in the optimiser.
  bool hasMasters() const { return type == Precision::kBFloat16 || type == Precision::kFloat16; }
};

void addPrecisionOptions(CLI::App& app, PrecisionOptions& options);
// What is wrong with the options, one line; empty: nothing.
std::string crossCheck(const PrecisionOptions& options);
// "precision", and what the scale depends on where there is one.
void addToTrajectory(const PrecisionOptions& options, nlohmann::json& trajectory);

}  // namespace gloo_bypass::trainer
