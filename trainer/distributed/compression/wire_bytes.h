// What a method of compression puts on the wire, before anything is sent.
#pragma once

#include <span>

#include "trainer/config/gpt2_config.h"
#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

// The bytes that a rank sends in a step, over those of the plain all-reduce, by the formulas of README.md.
// `parameters`: the model's; `gradientBytes`: of an element, 2, 4 or 8; `ranks`: at least 2.
double wireShare(const CompressionOptions& options, std::span<const ParameterShape> parameters, int64_t gradientBytes,
                 int ranks);
// Throws UsageError, which names the option to change, if that is 1 or more.
void requireGain(const Options& options, int ranks);

}  // namespace gloo_bypass::trainer
