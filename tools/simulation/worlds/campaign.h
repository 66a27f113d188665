// A hunt through many worlds: what they add up to, and those that broke a promise, made small. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/simulation/worlds/script.h"
#include "tools/simulation/worlds/shrinker.h"
#include "tools/simulation/worlds/world.h"

namespace gloo_bypass::sim {

struct CampaignSettings {
  std::uint64_t from = 1, seeds = 1000;
  Plant plant = Plant::kNothing;
  std::size_t mostTries = 3000;  // worlds that one failure may take to be made small
  std::size_t mostFailures = 5;  // then the hunt ends
};

struct Failure {
  std::uint64_t seed = 0;
  Finding finding;  // of the seed's own script
  Shrunk shrunk;
};

struct Campaign {
  std::uint64_t seeds = 0;  // that were run, and what they held:
  std::uint64_t events = 0, messages = 0, operations = 0, ended = 0, keyChanges = 0;
  double recoveryShare = 0;  // the most of the time that recovery is allowed
  std::uint64_t slowestSeed = 0;
  std::size_t memoryBytes = 0;  // the most that a session held
  std::vector<Failure> failures;

  void add(std::uint64_t seed, const WorldResult& result);
};

// Of a campaign while it runs. `goOn` is asked before every world, also those that make a failure small.
struct CampaignWatch {
  std::function<bool()> goOn = [] { return true; };
  std::function<void(std::uint64_t seed)> onSeed = [](std::uint64_t) {};  // before its world is run
  std::function<void(const Failure&)> onFailure = [](const Failure&) {};  // made small
};

Campaign runCampaign(const CampaignSettings& settings, const CampaignWatch& watch = {});

// "seed 17, safety: no result of an operation is wrong", details, and the small script.
std::string describe(const Failure& failure);

}  // namespace gloo_bypass::sim
