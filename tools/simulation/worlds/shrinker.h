// Makes a failing script small: leaves out faults, messages, operations, ranks, settings while the world still breaks
// the same promise, then makes quantities smaller (delta debugging: A. Zeller, R. Hildebrandt, Simplifying and
// isolating failure-inducing input, 2002). Pure.
#pragma once

#include <cstddef>
#include <functional>

#include "tools/simulation/worlds/script.h"
#include "tools/simulation/worlds/world.h"

namespace gloo_bypass::sim {

struct Shrunk {
  Script script;
  Finding finding;
  std::size_t tried = 0;  // worlds that were run
};

// `script` has the finding. Runs at most `mostTries` worlds, and no more once `goOn` says no.
Shrunk shrink(
    const Script& script, const Finding& finding, std::size_t mostTries,
    const std::function<bool()>& goOn = [] { return true; });

}  // namespace gloo_bypass::sim
