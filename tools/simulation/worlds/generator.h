// Random worlds: a script from a seed. Small ones, of a few hundred kilobytes at most, so that very many can be run;
// what they leave out is listed in README.md. Pure.
#pragma once

#include <cstdint>

#include "tools/simulation/worlds/script.h"

namespace gloo_bypass::sim {

// Its text reads back as the same script. `plant`: as in Script; only worlds that it can harm are made then.
Script generateScript(std::uint64_t seed, Plant plant = Plant::kNothing);

}  // namespace gloo_bypass::sim
