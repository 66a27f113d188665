#include "tools/simulation/worlds/campaign.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/simulation/worlds/generator.h"

namespace gloo_bypass::sim {

void Campaign::add(std::uint64_t seed, const WorldResult& result) {
  ++seeds;
  events += result.events;
  messages += result.messages;
  operations += result.operations;
  ended += result.ended;
  keyChanges += result.keyChanges;
  memoryBytes = std::max(memoryBytes, result.memoryBytes);
  if (result.recoveryShare <= recoveryShare) return;
  recoveryShare = result.recoveryShare;
  slowestSeed = seed;
}

Campaign runCampaign(const CampaignSettings& settings, const CampaignWatch& watch) {
  Campaign campaign;
  for (std::uint64_t run = 0; run < settings.seeds && watch.goOn(); ++run) {
    const std::uint64_t seed = settings.from + run;
    watch.onSeed(seed);
    const Script script = generateScript(seed, settings.plant);
    const WorldResult result = runWorld(script);
    campaign.add(seed, result);
    if (result.findings.empty()) continue;
    const Finding& finding = result.findings.front();
    campaign.failures.push_back({seed, finding, shrink(script, finding, settings.mostTries, watch.goOn)});
    watch.onFailure(campaign.failures.back());
    if (campaign.failures.size() >= settings.mostFailures) break;
  }
  return campaign;
}

std::string describe(const Failure& failure) {
  return fmt::format("# seed {}, {}: {}\n# {}\n# made small in {} worlds: {}\n{}", failure.seed,
                     nameOf(failure.finding.judgement), failure.finding.promise, failure.finding.details,
                     failure.shrunk.tried, failure.shrunk.finding.details, textOf(failure.shrunk.script));
}

}  // namespace gloo_bypass::sim
