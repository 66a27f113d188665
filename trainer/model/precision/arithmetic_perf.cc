// arithmetic_perf: how fast this machine's arithmetic is in each precision. See README.md in this folder.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/common/command_line.h"
#include "tools/common/machine.h"
#include "tools/common/result_file.h"
#include "tools/common/run_program.h"
#include "tools/common/statistics.h"
#include "tools/common/version.h"
#include "trainer/config/choices.h"
#include "trainer/model/blas.h"
#include "trainer/model/precision/arithmetic.h"
#include "trainer/model/precision/published_loop.h"
#include "transport/process/json_text.h"

namespace gloo_bypass::trainer {
namespace {

constexpr Precision kTypes[] = {Precision::kFloat32, Precision::kFloat64, Precision::kBFloat16, Precision::kFloat16};

struct ProductSize {
  int64_t m = 0, k = 0, n = 0;  // (M, K) x (K, N)
};

struct PerfOptions {
  std::vector<std::string> sizeTexts{"512x768x3072", "512x768x50257"};
  std::vector<ProductSize> sizes;
  int rounds = 20;
  int64_t loopPasses = kPublishedPasses / 100;
  std::string jsonPath;
};

// One thing to be timed, and what each round took. `fault`: why it cannot be run here.
struct Series {
  nlohmann::json names;
  std::function<void()> run;
  double work;  // floating-point operations, or passes, of a run
  std::vector<double> seconds;
  std::string fault;
};

ProductSize parseSize(const std::string& text) {
  std::array<int64_t, 3> numbers{};
  const char *at = text.data(), *const end = at + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    const bool isLast = i + 1 == numbers.size();
    if (error != std::errc() || numbers[i] < 1 || numbers[i] > 65536 ||
        (isLast ? next != end : next == end || *next != 'x')) {
      throw UsageError(fmt::format("--gemm {}: not three numbers from 1 to 65536, as in 512x768x3072", text));
    }
    at = next + 1;
  }
  return {numbers[0], numbers[1], numbers[2]};
}

std::variant<PerfOptions, std::string> parsePerfOptions(int argc, const char* const* argv) {
  PerfOptions options;
  CLI::App app(
      "How fast matrix products are in fp32, fp64, bf16 and fp16, and the published loop of multiplications and "
      "divisions "
      "by 3. Rounds alternate between all of them.",
      "arithmetic_perf");
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", "arithmetic_perf " + buildVersion());
  app.add_option("--gemm", options.sizeTexts,
                 "products (M, K) x (K, N) as MxKxN, commas between (default: two of DistilGPT2's)")
      ->delimiter(',')
      ->type_name("MxKxN,...");
  app.add_option("--rounds", options.rounds, "runs of each; a first one is not counted")->check(CLI::Range(1, 100'000));
  app.add_option("--loop-passes", options.loopPasses,
                 "of the loop in a round (0: no loop); the published one has 1.15e9")
      ->check(CLI::Range(int64_t{0}, int64_t{100} * kPublishedPasses));
  app.add_option("--json", options.jsonPath, "write everything as JSON")->type_name("FILE");
  if (auto text = readCommandLine(app, argc, argv)) {
    return *std::move(text);
  }
  for (const std::string& text : options.sizeTexts) {
    options.sizes.push_back(parseSize(text));
  }
  return options;
}

// libtorch's own product of the type, and the one that ddp_train computes where that is another.
void addProducts(const ProductSize& size, Precision precision, std::vector<Series>& products) {
  const auto type = arithmetic::scalarTypeOf(precision);
  at::manual_seed(1);
  const auto x = at::randn({size.m, size.k}).to(type), y = at::randn({size.k, size.n}).to(type);
  const nlohmann::json names{{"m", size.m}, {"k", size.k}, {"n", size.n}, {"type", nameOf(kPrecisions, precision)}};
  const auto add = [&](const char* kernel, std::function<void()> run) {
    products.push_back({names, std::move(run), 2.0 * static_cast<double>(size.m * size.k * size.n), {}, {}});
    products.back().names["kernel"] = kernel;
  };
  add("libtorch", [x, y] { at::mm(x, y); });
  if (arithmetic::computedIn(type) != type) {
    add("ddp_train", [x, y] { arithmetic::mm(x, y); });
  }
}

void measure(std::vector<Series>& all, int rounds) {
  using Clock = std::chrono::steady_clock;
  for (int round = -1; round < rounds; ++round) {
    for (Series& series : all) {
      if (!series.fault.empty()) {
        continue;
      }
      const auto start = Clock::now();
      try {
        series.run();
      } catch (const c10::Error& error) {
        series.fault = oneLine(error.what_without_backtrace());
        continue;
      }
      if (round >= 0) {
        series.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
    }
  }
}

nlohmann::json resultOf(const Series& series) {
  nlohmann::json result = series.names;
  const auto seconds = sorted(series.seconds);
  const bool isMeasured = series.fault.empty();
  const auto orNull = [&](double value) { return isMeasured ? nlohmann::json(value) : nlohmann::json(nullptr); };
  result["rounds"] = seconds.size();
  result["p50_s"] = orNull(percentile(seconds, 50));
  result["p99_s"] = orNull(percentile(seconds, 99));
  result["min_s"] = orNull(percentile(seconds, 0));
  if (!isMeasured) {
    result["fault"] = series.fault;
  }
  return result;
}

nlohmann::json productResult(const Series& series) {
  auto result = resultOf(series);
  result["gflop_s"] = result["p50_s"].is_null() ? nlohmann::json(nullptr)
                                                : nlohmann::json(series.work / result["p50_s"].get<double>() / 1e9);
  fmt::print(
      "{:>24} {:>5} {:>10} {:>12} {:>12} {:>10}\n",
      fmt::format("{}x{}x{}", result["m"].get<int64_t>(), result["k"].get<int64_t>(), result["n"].get<int64_t>()),
      result["type"].get<std::string>(), result["kernel"].get<std::string>(),
      series.fault.empty() ? fmt::format("{:.1f}", result["p50_s"].get<double>() * 1e6) : "none",
      series.fault.empty() ? fmt::format("{:.1f}", result["p99_s"].get<double>() * 1e6) : "none",
      series.fault.empty() ? fmt::format("{:.2f}", result["gflop_s"].get<double>()) : "none");
  return result;
}

nlohmann::json loopResult(const Series& series, Precision type) {
  auto result = resultOf(series);
  const double factor = static_cast<double>(kPublishedPasses) / series.work;
  const double published = publishedLoopSeconds(type);
  result["passes"] = static_cast<int64_t>(series.work);
  result["published_passes"] = kPublishedPasses;
  result["seconds_for_published_passes"] = result["p50_s"].get<double>() * factor;
  result["published_s"] = published > 0 ? nlohmann::json(published) : nlohmann::json(nullptr);
  fmt::print("{:>5} {:>14.3f} {:>14.3f} {:>12}\n", nameOf(kPrecisions, type), result["p50_s"].get<double>() * factor,
             result["p99_s"].get<double>() * factor, published > 0 ? fmt::format("{:.2f}", published) : "-");
  return result;
}

int measureAll(const PerfOptions& options) {
  makeWriteSignalsErrors();
  if (!options.jsonPath.empty()) {
    checkWritable("--json", options.jsonPath);
  }
  const at::NoGradGuard noGrad;
  std::vector<Series> all;
  for (const ProductSize& size : options.sizes) {
    for (const Precision type : kTypes) {
      addProducts(size, type, all);
    }
  }
  const size_t productCount = all.size();
  for (const Precision type : kTypes) {
    if (options.loopPasses > 0) {
      all.push_back({{{"type", nameOf(kPrecisions, type)}},
                     [type, &options] { runPublishedLoop(type, options.loopPasses); },
                     static_cast<double>(options.loopPasses),
                     {},
                     {}});
    }
  }
  measure(all, options.rounds);
  nlohmann::json report{{"schema", "gloo-bypass/arithmetic_perf/1"},
                        {"commit", commitName()},
                        {"machine", describeMachine()},
                        {"blas", blasName()},
                        {"threads", at::get_num_threads()},
                        {"rounds", options.rounds},
                        {"gemm", nlohmann::json::array()},
                        {"loop", nlohmann::json::array()}};
  fmt::print("{:>24} {:>5} {:>10} {:>12} {:>12} {:>10}\n", "(M, K) x (K, N)", "type", "kernel", "p50 (us)", "p99 (us)",
             "GFLOP/s");
  for (size_t i = 0; i < productCount; ++i) {
    report["gemm"].push_back(productResult(all[i]));
  }
  if (productCount < all.size()) {
    fmt::print("\nseconds for {} multiplications and divisions by 3, from {} of them\n{:>5} {:>14} {:>14} {:>12}\n",
               kPublishedPasses, options.loopPasses, "type", "p50", "p99", "published");
  }
  for (size_t i = productCount; i < all.size(); ++i) {
    report["loop"].push_back(loopResult(all[i], kTypes[i - productCount]));
  }
  writeResult("--json", options.jsonPath, jsonText(report) + "\n");
  return 0;
}

}  // namespace
}  // namespace gloo_bypass::trainer

int main(int argc, char** argv) {
  namespace trainer = gloo_bypass::trainer;
  trainer::restartWithBetterBlas(argv);
  return gloo_bypass::runProgram("arithmetic_perf", trainer::parsePerfOptions, trainer::measureAll, argc, argv);
}
