// Descriptions of fabrics without a fuzzer: the examples, and mutations of them with a fixed seed. scripts/fuzz
// searches further.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/sim/settings.h"
#include "tools/simulation/core/random.h"

namespace gloo_bypass::fuzz {
namespace {

std::vector<Input> corpus() {
  return inputsIn(std::array<std::string, 2>{GLOO_BYPASS_FUZZ_CORPUS "/description", FABRIC_EXAMPLES});
}

TEST(FuzzReplay, DescriptionCorpus_IsHandled) {
  const std::vector<Input> inputs = corpus();
  ASSERT_GE(inputs.size(), 8u);
  for (const Input& input : inputs) fuzzDescription(input);
}

// Changes bytes, cuts pieces out, doubles them, or takes them from another input: most still parse far enough to pass
// the TOML parser.
TEST(FuzzReplay, DescriptionMutations_AreHandled) {
  const std::vector<Input> inputs = corpus();
  sim::forEachSeed(2'000, 1, [&](std::uint64_t seed) {
    sim::Random random(seed);
    Input input = inputs[random.below(inputs.size())];
    const auto piece = [&](const Input& from) {
      const std::size_t begin = random.below(from.size());
      const std::size_t end = begin + random.below(std::min<std::size_t>(from.size() - begin, 80)) + 1;
      return Input(from.begin() + static_cast<std::ptrdiff_t>(begin), from.begin() + static_cast<std::ptrdiff_t>(end));
    };
    for (std::uint64_t i = 1 + random.below(4); i > 0 && !input.empty(); --i) {
      const auto at = input.begin() + static_cast<std::ptrdiff_t>(random.below(input.size()));
      const std::uint64_t kind = random.below(3);
      if (kind == 0) {
        *at = static_cast<std::uint8_t>(random.chance(0.5) ? "0123456789.-%\"[]=,"[random.below(18)] : random.next());
      } else if (kind == 1) {
        input.erase(at, at + static_cast<std::ptrdiff_t>(
                                 random.below(std::min<std::size_t>(40, static_cast<std::size_t>(input.end() - at)))));
      } else {
        const Input extra = piece(inputs[random.below(inputs.size())]);
        input.insert(at, extra.begin(), extra.end());
      }
    }
    fuzzDescription(input);
  });
}

}  // namespace
}  // namespace gloo_bypass::fuzz
