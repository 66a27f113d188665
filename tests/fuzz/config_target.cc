// A model's config.json that someone else made.
#include <algorithm>
#include <limits>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tools/common/error.h"
#include "trainer/config/gpt2_config.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {
namespace {

constexpr std::int64_t kFewLayers = 8;  // of a model whose shapes are all looked at

// The sizes must make a model whose bytes can be counted.
void checkSizes(const trainer::Gpt2Config& config) {
  const std::int64_t sizes[] = {config.layers, config.hidden, config.heads, config.vocabulary, config.positions};
  GLOO_BYPASS_CHECK(std::all_of(std::begin(sizes), std::end(sizes), [](std::int64_t size) { return size > 0; }));
  GLOO_BYPASS_CHECK(config.hidden % config.heads == 0);
  constexpr std::int64_t kMostBytesOfOne = 8;
  GLOO_BYPASS_CHECK(config.parameterCount() > 0 &&
                    config.parameterCount() <= std::numeric_limits<std::int64_t>::max() / kMostBytesOfOne);
  if (config.layers > kFewLayers) return;
  std::int64_t count = 0;
  for (const trainer::ParameterShape& shape : config.parameters()) {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape.sizes) elements *= size;
    count += elements;
  }
  GLOO_BYPASS_CHECK(count == config.parameterCount());
}

}  // namespace

void fuzzConfig(std::span<const std::uint8_t> input) {
  static MemoryFile memory;
  memory.hold(input);
  try {
    checkSizes(trainer::Gpt2Config::fromFile(memory.path()));
  } catch (const UsageError& error) {
    checkLine(error.what());
  }
}

}  // namespace gloo_bypass::fuzz
