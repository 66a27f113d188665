// Which compression of gradients a run uses: --compress and what belongs to it. No libtorch.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

enum class CompressionMethod { kNone, kFp16, kBf16, kTopK, kRandomK, kSign, kTernGrad, kQsgd, kPowerSgd };

struct CompressionOptions {
  CompressionMethod method = CompressionMethod::kNone;
  double ratio = 0.01;        // top-k, random-k: share of each tensor's elements that is sent
  int64_t levels = 16;        // QSGD: above zero
  int64_t rank = 4;           // PowerSGD
  int64_t warmupSteps = -1;   // with the plain all-reduce; -1: 10 for PowerSGD, else 0
  bool errorFeedback = true;  // where the method has it

  bool isUsed() const { return method != CompressionMethod::kNone; }
  int64_t plainSteps() const;
};

void addCompressionOptions(CLI::App& app, CompressionOptions& options);
// What is wrong with the options, one line; empty: nothing.
std::string crossCheck(const CompressionOptions& options, bool hasGroup);
// Adds nothing where nothing is compressed.
void addToTrajectory(const CompressionOptions& options, nlohmann::json& trajectory);

} // namespace gloo_bypass::trainer
