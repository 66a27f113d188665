// Runs a script to its end in virtual time, and judges it. As TigerBeetle's VOPR does, it judges two things apart:
//
//   safety    at all times: every message is right, comes once and in order; buffers are touched only while they are
//             lent; no sum is wrong; ranks agree on what has ended well; memory is bounded; no session ends for nothing
//   liveness  once faults have stopped and nothing is lost any more: all that can still happen happens within a bound
//             of virtual time, and sessions close
//
//   connect, traffic and faults -> edges heal -> traffic ends, or its sessions have ended -> all close -> drained
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/simulation/worlds/script.h"
#include "transport/base/time.h"

namespace gloo_bypass::sim {

enum class Judgement : std::uint8_t { kSafety, kLiveness };
const char* nameOf(Judgement judgement);

// What is wrong: the promise that was broken, in words that stay the same while a script shrinks, and details.
struct Finding {
  Judgement judgement = Judgement::kSafety;
  std::string promise;  // "a message is right, and comes once and in order"
  std::string details;
};

struct WorldResult {
  std::vector<Finding> findings;  // the first few; empty: none
  std::uint64_t events = 0;       // of the simulation
  Duration recovery{0};           // from when faults had stopped until the traffic was over
  double recoveryShare = 0;       // of what is allowed
  std::uint64_t messages = 0;     // that arrived
  std::uint64_t operations = 0;   // that ended well, summed over ranks
  std::uint64_t ended = 0;        // connections that ended before their traffic, for a reason in the script
  std::uint64_t keyChanges = 0;   // of ends of sealed paths
  std::size_t memoryBytes = 0;    // the most that a session held
};

WorldResult runWorld(const Script& script);

}  // namespace gloo_bypass::sim
