#include "trainer/config/compression_options.h"

#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trainer/config/given.h"
#include "trainer/config/named_choices.h"

namespace gloo_bypass::trainer {
namespace {

const NamedChoices<CompressionMethod> kMethods{
    {"none", CompressionMethod::kNone},         {"fp16", CompressionMethod::kFp16},
    {"bf16", CompressionMethod::kBf16},         {"topk", CompressionMethod::kTopK},
    {"randomk", CompressionMethod::kRandomK},   {"sign", CompressionMethod::kSign},
    {"terngrad", CompressionMethod::kTernGrad}, {"qsgd", CompressionMethod::kQsgd},
    {"powersgd", CompressionMethod::kPowerSgd}};

constexpr int64_t kPowerSgdPlainSteps = 10;
constexpr int64_t kMaxLevels = 32767;

const std::string& name(CompressionMethod method) { return nameOf(kMethods, method); }

bool isSparse(CompressionMethod method) {
  return method == CompressionMethod::kTopK || method == CompressionMethod::kRandomK;
}

bool canFeedBack(CompressionMethod method) {
  return isSparse(method) || method == CompressionMethod::kSign || method == CompressionMethod::kPowerSgd;
}

}  // namespace

int64_t CompressionOptions::plainSteps() const {
  return warmupSteps.value_or(method == CompressionMethod::kPowerSgd ? kPowerSgdPlainSteps : 0);
}

void addCompressionOptions(CLI::App& app, CompressionOptions& o) {
  const char* group = "Gradient compression";
  app.add_option_function<std::string>(
         "--compress", [&o](const std::string& text) { o.method = kMethods.at(text); },
         "what ranks send instead of their gradients: casts (fp16, bf16), the largest or random elements (topk, "
         "randomk), one "
         "bit an element (sign), three values (terngrad), a few levels (qsgd), low rank (powersgd)")
      ->check(CLI::IsMember(namesOf(kMethods)))
      ->group(group)
      ->default_str("none");
  app.add_option("--compress-ratio", o.ratio, "topk, randomk: share of each tensor's elements that is sent")
      ->check(CLI::Range(1e-6, 1.0))
      ->group(group)
      ->default_str("0.01");
  app.add_option("--compress-levels", o.levels, "qsgd: levels above zero")
      ->check(CLI::Range(int64_t{1}, kMaxLevels))
      ->group(group)
      ->default_str("16");
  app.add_option("--compress-rank", o.rank, "powersgd: rank of what is sent of each matrix")
      ->check(CLI::Range(1, 1024))
      ->group(group)
      ->default_str("4");
  app.add_option("--compress-warmup", o.warmupSteps,
                 "steps with the plain all-reduce before (default: 10 for powersgd, else 0)")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->group(group);
  app.add_flag("!--no-error-feedback", o.errorFeedback,
               "topk, randomk, sign, powersgd: do not add what was not sent to the "
               "next step's gradient")
      ->group(group);
}

std::string crossCheck(const CompressionOptions& o, bool hasGroup) {
  if (o.isUsed() && !hasGroup) {
    return "--compress is of what ranks send: nothing is sent with --no-ddp";
  }
  if (!o.isUsed() && (o.ratio || o.levels || o.rank || o.warmupSteps || !o.errorFeedback)) {
    return firstGiven({{o.ratio.has_value(), "--compress-ratio"},
                       {o.levels.has_value(), "--compress-levels"},
                       {o.rank.has_value(), "--compress-rank"},
                       {o.warmupSteps.has_value(), "--compress-warmup"},
                       {!o.errorFeedback, "--no-error-feedback"}}) +
           " needs --compress METHOD";
  }
  if (o.ratio && !isSparse(o.method)) {
    return fmt::format("--compress-ratio is for --compress topk and randomk, not for {}", name(o.method));
  }
  if (o.ratio && !(*o.ratio > 0)) {
    return "--compress-ratio: no number above 0";
  }
  if (o.levels && o.method != CompressionMethod::kQsgd) {
    return fmt::format("--compress-levels is for --compress qsgd, not for {}", name(o.method));
  }
  if (o.rank && o.method != CompressionMethod::kPowerSgd) {
    return fmt::format("--compress-rank is for --compress powersgd, not for {}", name(o.method));
  }
  if (!o.errorFeedback && !canFeedBack(o.method)) {
    return fmt::format("--no-error-feedback: --compress {} has none (topk, randomk, sign and powersgd have)",
                       name(o.method));
  }
  return {};
}

void addToTrajectory(const CompressionOptions& o, nlohmann::json& trajectory) {
  if (!o.isUsed()) return;
  nlohmann::json compression{{"method", name(o.method)}, {"plain_steps", o.plainSteps()}};
  if (isSparse(o.method)) compression["ratio"] = o.keptRatio();
  if (o.method == CompressionMethod::kQsgd) compression["levels"] = o.quantisationLevels();
  if (o.method == CompressionMethod::kPowerSgd) compression["rank"] = o.matrixRank();
  if (canFeedBack(o.method)) compression["error_feedback"] = o.errorFeedback;
  trajectory["compression"] = std::move(compression);
}

}  // namespace gloo_bypass::trainer
