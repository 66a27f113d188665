// Which compression of gradients a run uses: --compress and what belongs to it. No libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

enum class CompressionMethod { kNone, kFp16, kBf16, kTopK, kRandomK, kSign, kTernGrad, kQsgd, kPowerSgd };

struct CompressionOptions {
  CompressionMethod method = CompressionMethod::kNone;
  // As given; the functions below have the defaults.
  std::optional<double> ratio;         // top-k, random-k: share of each tensor's elements that is sent
  std::optional<int64_t> levels;       // QSGD: above zero
  std::optional<int64_t> rank;         // PowerSGD
  std::optional<int64_t> warmupSteps;  // with the plain all-reduce; 10 for PowerSGD, else 0
  bool errorFeedback = true;           // where the method has it

  bool isUsed() const { return method != CompressionMethod::kNone; }
  // Whether each rank writes a file of its own beside a checkpoint: what is left out, or PowerSGD's last matrices.
  bool keepsRankState() const {
    const bool leavesOut = method == CompressionMethod::kTopK || method == CompressionMethod::kRandomK ||
                           method == CompressionMethod::kSign;
    return method == CompressionMethod::kPowerSgd || (leavesOut && errorFeedback);
  }
  double keptRatio() const { return ratio.value_or(0.01); }
  int64_t quantisationLevels() const { return levels.value_or(16); }
  int64_t matrixRank() const { return rank.value_or(4); }
  int64_t plainSteps() const;
};

void addCompressionOptions(CLI::App& app, CompressionOptions& options);
// What is wrong with the options, one line; empty: nothing.
std::string crossCheck(const CompressionOptions& options, bool hasGroup);
// Adds nothing where nothing is compressed.
void addToTrajectory(const CompressionOptions& options, nlohmann::json& trajectory);

}  // namespace gloo_bypass::trainer
