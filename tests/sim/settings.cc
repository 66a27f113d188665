#include "tests/sim/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace gloo_bypass::sim {
namespace {

// GLOO_BYPASS_SIM_RUNS replaces this number of runs; other tests scale in proportion.
constexpr std::uint64_t kNominalRuns = 3000;
constexpr std::uint64_t kDefaultRuns = kSanitized ? 200 : kNominalRuns;

Settings values;

std::uint64_t parse(const char* name, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    std::fprintf(stderr, "%s: '%.*s' is not a whole number\n", name, static_cast<int>(text.size()), text.data());
    std::exit(2);
  }
  return value;
}

}  // namespace

std::uint64_t Settings::runsOr(std::uint64_t byDefault) const {
  return std::max<std::uint64_t>(1, byDefault * runs.value_or(kDefaultRuns) / kNominalRuns);
}

void readSettings(int argc, char** argv) {
  if (const char* seed = std::getenv("GLOO_BYPASS_SIM_SEED")) values.seed = parse("GLOO_BYPASS_SIM_SEED", seed);
  if (const char* runs = std::getenv("GLOO_BYPASS_SIM_RUNS")) values.runs = parse("GLOO_BYPASS_SIM_RUNS", runs);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag.starts_with("--sim-seed=")) values.seed = parse("--sim-seed", flag.substr(11));
    if (flag.starts_with("--sim-runs=")) values.runs = parse("--sim-runs", flag.substr(11));
  }
}

const Settings& settings() { return values; }

}  // namespace gloo_bypass::sim
