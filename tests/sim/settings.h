// Settings of a simulator run: GLOO_BYPASS_SIM_SEED (repeat this one run) and GLOO_BYPASS_SIM_RUNS (how many runs;
// sanitizers use fewer). Flags --sim-seed= and --sim-runs= of a test executable mean the same.
#pragma once

#include <cstdint>
#include <optional>

namespace gloo_bypass::sim {

// Sanitizers make a virtual second some twenty times dearer: fewer runs then, and long paths of a tenth of the rate.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr double kLongPathScale = kSanitized ? 0.1 : 1;

struct Settings {
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> runs;

  // `runs` of the environment scale a test's own number: 100 means a tenth of what a test with 1,000 does by default.
  std::uint64_t runsOr(std::uint64_t byDefault) const;
};

// Parses flags and environment once; a wrong value ends the process with one line.
void readSettings(int argc, char** argv);
const Settings& settings();

// Calls run(seed) for each run of a test, or for the one given seed.
template <typename Run>
void forEachSeed(std::uint64_t runs, std::uint64_t firstSeed, Run run) {
  if (settings().seed) {
    run(*settings().seed);
    return;
  }
  const std::uint64_t count = settings().runsOr(runs);
  for (std::uint64_t i = 0; i < count; ++i) run(firstSeed + i);
}

}  // namespace gloo_bypass::sim
