// The hunt: random worlds break no promise, and faults that are planted in the world are found and made small.
#include "tools/simulation/worlds/campaign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/sim/settings.h"
#include "tools/simulation/worlds/generator.h"

namespace gloo_bypass::sim {
namespace {

std::string describeAll(const Campaign& campaign) {
  std::string text;
  for (const Failure& failure : campaign.failures) text += describe(failure) + "\n";
  return text;
}

TEST(Hunt, ThousandsOfWorlds_NoPromiseIsBroken) {
  CampaignSettings settings;
  if (sim::settings().seed) settings.from = *sim::settings().seed;
  settings.seeds = sim::settings().seed ? 1 : sim::settings().runsOr(20'000);
  const Campaign campaign = runCampaign(settings);
  EXPECT_TRUE(campaign.failures.empty()) << describeAll(campaign);
  if (sim::settings().seed) return;
  // What hunts nothing would pass as well.
  EXPECT_GT(campaign.messages, 5 * settings.seeds);
  EXPECT_GT(campaign.operations, settings.seeds);
  EXPECT_GT(campaign.ended, settings.seeds / 10);
  EXPECT_GT(campaign.keyChanges, settings.seeds / 4);
}

TEST(World, SameScript_GivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Script script = generateScript(seed);
    EXPECT_EQ(runWorld(script).events, runWorld(script).events) << "seed " << seed;
  }
}

struct Planted {
  Plant plant;
  Judgement judgement;
  const char* name;
};
class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFoundAndMadeSmall) {
  const Plant plant = GetParam().plant;
  const Judgement judgement = GetParam().judgement;
  CampaignSettings settings;
  settings.seeds = 300;
  settings.plant = plant;
  settings.mostFailures = 10;
  const Campaign campaign = runCampaign(settings);
  const auto found = std::find_if(campaign.failures.begin(), campaign.failures.end(),
                                  [&](const Failure& failure) { return failure.finding.judgement == judgement; });
  ASSERT_NE(found, campaign.failures.end()) << campaign.seeds << " worlds\n" << describeAll(campaign);
  const Failure& failure = *found;
  const std::string text = textOf(failure.shrunk.script);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 12) << describe(failure);
  // What is printed repeats it.
  const auto script = parseScript(describe(failure));
  ASSERT_TRUE(script.ok()) << script.error().message;
  const WorldResult again = runWorld(script.value());
  ASSERT_FALSE(again.findings.empty());
  EXPECT_EQ(again.findings.front().promise, failure.finding.promise);
  // It is the plant that breaks it.
  Script sound = script.value();
  sound.plant = Plant::kNothing;
  EXPECT_TRUE(runWorld(sound).findings.empty());
}

INSTANTIATE_TEST_SUITE_P(Plants, PlantedFault,
                         testing::Values(Planted{Plant::kFlip, Judgement::kSafety, "Flip"},
                                         Planted{Plant::kSwallow, Judgement::kLiveness, "Swallow"},
                                         Planted{Plant::kHoard, Judgement::kSafety, "Hoard"}),
                         [](const auto& info) { return info.param.name; });

// Small scripts of faults that a hunt found, and that are mended.
TEST(World, OnceBroken_IsMended) {
  constexpr const char* kScripts[] = {
      // A lone frame longer than the path had become was repeated for ever.
      "world seed=13460\n"
      "edge from=1 to=0 delay=5.5ms\n"
      "message from=1 to=0 length=480\n"
      "fault kind=mtu at=9.59ms from=1 to=0 rank=1 bytes=571\n",
      // The same at the end of a group: the rank that had left gave up, and its peer's operation failed.
      "world seed=16907\n"
      "edge from=1 to=0 delay=5.83ms\n"
      "operation type=uint8 count=980\n"
      "fault kind=mtu at=1.45ms bytes=772\n",
      // Both ends began key changes, and one went two keys ahead of what the other had opened.
      "world seed=9434\n"
      "pair key-packets=1\n"
      "edge loss=20%\n"
      "message length=1 receive-at=68.9us\n"};
  for (const std::string text : kScripts) {
    const auto script = parseScript(text);
    ASSERT_TRUE(script.ok()) << script.error().message;
    for (const Finding& finding : runWorld(script.value()).findings) {
      ADD_FAILURE() << text << finding.promise << ": " << finding.details;
    }
  }
}

}  // namespace
}  // namespace gloo_bypass::sim
