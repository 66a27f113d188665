// Which options exclude or need each other: one table. No libtorch.
#pragma once

#include <functional>
#include <string>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

constexpr double kSmallestLossScale = 0x1p-126, kLargestLossScale = 0x1p100;  // of normal floats

// What is wrong with the options together, one line; empty: nothing. `isGiven`: whether a flag is on the command line.
std::string conflictIn(
    const Options& options, const std::function<bool(const char* flag)>& isGiven = [](const char*) { return false; });

}  // namespace gloo_bypass::trainer
