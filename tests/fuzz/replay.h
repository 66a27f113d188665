// Feeds a target its corpus, and random inputs and mutations with a fixed seed.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/fuzz/corpus.h"
#include "tests/sim/settings.h"
#include "tools/simulation/core/random.h"

namespace gloo_bypass::fuzz {

using Target = void (*)(std::span<const std::uint8_t>);

inline std::vector<Input> corpus(const std::string& name) {
  return inputsIn(std::array{std::string(GLOO_BYPASS_FUZZ_CORPUS) + "/" + name});
}

inline void replay(const std::string& name, Target target, std::size_t minimum) {
  const std::vector<Input> inputs = corpus(name);
  ASSERT_GE(inputs.size(), minimum) << "corpus of " << name;
  for (const Input& input : inputs) target(input);
}

inline void mutate(const std::string& name, Target target, std::uint64_t runs, std::size_t randomBytes) {
  const std::vector<Input> inputs = corpus(name);
  sim::forEachSeed(runs, 1, [&](std::uint64_t seed) {
    sim::Random random(seed);
    Input input;
    if (!inputs.empty() && random.chance(0.7)) {
      input = inputs[random.below(inputs.size())];
      for (std::uint64_t i = 1 + random.below(8); i > 0 && !input.empty(); --i) {
        input[random.below(input.size())] = static_cast<std::uint8_t>(random.next());
      }
      if (random.chance(0.2)) input.resize(random.below(input.size() + 1));
    } else {
      input.resize(random.below(randomBytes));
      for (std::uint8_t& each : input) each = static_cast<std::uint8_t>(random.next());
    }
    target(input);
  });
}

}  // namespace gloo_bypass::fuzz
