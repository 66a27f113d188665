#include "trainer/config/precision_options.h"

#include <charconv>
#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trainer/optimizer/loss_scaler.h"

namespace gloo_bypass::trainer {
namespace {

const std::map<std::string, Precision> kPrecisions{{"fp32", Precision::kFloat32},
                                                   {"fp64", Precision::kFloat64},
                                                   {"bf16", Precision::kBFloat16},
                                                   {"fp16", Precision::kFloat16}};
constexpr double kSmallestScale = 0x1p-126, kLargestScale = 0x1p100;  // of normal floats

bool isScale(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= kSmallestScale && value <= kLargestScale;
}

}  // namespace

const char* name(Precision precision) {
  for (const auto& [text, value] : kPrecisions) {
    if (value == precision) {
      return text.c_str();
    }
  }
  return "unknown";
}

void addPrecisionOptions(CLI::App& app, PrecisionOptions& o) {
  app.add_option_function<std::string>(
         "--precision", [&o](const std::string& text) { o.type = kPrecisions.at(text); },
         "of parameters, gradients and arithmetic; with bf16 and fp16 the optimiser holds fp32 masters, sums within an "
         "operation "
         "are fp32 and gradients are reduced in 16 bits")
      ->check(CLI::IsMember({"fp32", "fp64", "bf16", "fp16"}))
      ->group("Run")
      ->default_str("fp32");
  const char* group = "Loss scaling (with --precision bf16 or fp16)";
  app.add_option("--loss-scale", o.lossScale,
                 "multiply the loss by this before backward and divide the gradients by it after the "
                 "all-reduce: dynamic, a number, or off; steps with infinite gradients are left out unless off "
                 "(default: dynamic for "
                 "fp16, off for bf16)")
      ->type_name("dynamic|N|off")
      ->group(group);
  app.add_option("--initial-loss-scale", o.initialLossScale, "of a dynamic loss scale")
      ->check(CLI::Range(1e-30, kLargestScale))
      ->group(group);
  app.add_option("--loss-scale-interval", o.lossScaleInterval,
                 "steps without overflow before a dynamic loss scale doubles")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->group(group);
}

std::string crossCheck(const PrecisionOptions& o) {
  if (!o.lossScale.empty() && o.lossScale != "dynamic" && o.lossScale != "off" && !isScale(o.lossScale)) {
    return fmt::format("--loss-scale {}: neither dynamic nor off nor a number from 2^-126 to 2^100", o.lossScale);
  }
  if (!o.lossScale.empty() && o.lossScale != "off" && !o.hasMasters()) {
    return fmt::format("--loss-scale {} is for --precision bf16 and fp16, not for {}", o.lossScale, name(o.type));
  }
  return {};
}

void addToTrajectory(const PrecisionOptions& o, nlohmann::json& trajectory) {
  trajectory["precision"] = name(o.type);
  if (LossScaler(o).isOn()) {
    trajectory["loss_scale"] = o.lossScale.empty() ? "dynamic" : o.lossScale;
    trajectory["initial_loss_scale"] = o.initialLossScale;
    trajectory["loss_scale_interval"] = o.lossScaleInterval;
  }
}

}  // namespace gloo_bypass::trainer
