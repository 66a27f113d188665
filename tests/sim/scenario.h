// A random path, configuration and traffic, all from one seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/pair.h"

namespace gloo_bypass::sim {

struct Scenario {
  std::uint64_t seed = 0;
  PathModel path;
  SessionConfig config;
  TrafficModel forth, back;

  Duration rtt() const { return path.forth.delay + path.back.delay; }
  // Describes the path; the seed repeats it.
  std::string describe() const;
};

// Over the whole grid: loss 0 to 30 %, duplication, reordering, corruption, RTT 10 us to 300 ms, rates, short queues.
Scenario lossyScenario(std::uint64_t seed);
// A memory link: nothing is lost, a full ring pushes back.
Scenario losslessScenario(std::uint64_t seed);

// Runs it to the end: connect, all traffic, close in good order. Empty, or what went wrong.
std::vector<std::string> runScenario(const Scenario& scenario);

}  // namespace gloo_bypass::sim
