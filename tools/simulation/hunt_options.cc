#include "tools/simulation/hunt_options.h"

#include <map>

#include "tools/common/command_line.h"
#include "tools/common/version.h"

namespace gloo_bypass::sim {
namespace {

constexpr const char* kDescription =
    "Hunts for faults of the protocol and of the collectives in virtual time: runs worlds drawn at random from seeds "
    "(ranks, paths, settings, traffic, faults) and checks what they promise. A world that breaks a promise is made "
    "small and printed as a script.";
constexpr const char* kFooter =
    R"(Safety, at all times: messages are right, and come once and in order; results of operations are right;
memory is bounded; nothing ends without a reason. Liveness, once faults have stopped: all that can still
happen does so within a bound of virtual time.

A script has a line for each thing (tools/simulation/worlds/README.md); what is printed for a failure can be
given to --script as it is. Exit status: 0, no promise was broken; 1, one was; 2, bad input; 130,
interrupted.)";

}  // namespace

std::variant<HuntOptions, std::string> parseHuntOptions(int argc, const char* const* argv) {
  HuntOptions options;
  CLI::App app(kDescription, "hunt");
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  app.set_version_flag("--version", std::string("hunt ") + versionName());
  CLI::Option* const seeds = app.add_option("--seeds", options.campaign.seeds, "how many worlds")
                                 ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000'000}))
                                 ->type_name("N")
                                 ->capture_default_str();
  CLI::Option* const from =
      app.add_option("--from", options.campaign.from, "the first one's seed")->type_name("SEED")->capture_default_str();
  CLI::Option* const seed =
      app.add_option("--seed", options.seed, "this world alone")->type_name("SEED")->excludes(seeds)->excludes(from);
  CLI::Option* const script = app.add_option("--script", options.scriptPath, "the world that this file describes")
                                  ->type_name("FILE")
                                  ->check(CLI::ExistingFile)
                                  ->excludes(seeds)
                                  ->excludes(from)
                                  ->excludes(seed);
  app.add_flag("--show", options.show, "with --seed or --script: print the script, whatever it gives");
  app.add_option("--shrink-worlds", options.campaign.mostTries, "how many worlds may be run to make one failure small")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--failures", options.campaign.mostFailures, "after so many the hunt ends")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  static const std::map<std::string, Plant> kPlants{
      {"nothing", Plant::kNothing}, {"flip", Plant::kFlip}, {"swallow", Plant::kSwallow}, {"hoard", Plant::kHoard}};
  app.add_option("--plant", options.campaign.plant,
                 "a fault of the world itself, to see it found: flip (the network changes messages without a "
                 "checksum), swallow (a receiver acknowledges a message and loses it) or hoard (a session keeps the "
                 "payload of what it has delivered). A script says itself whether it has one")
      ->excludes(script)
      ->transform(CLI::Transformer(kPlants))
      ->check(CLI::IsMember({0, 1, 2, 3}).description("").name(""))
      ->option_text("NAME [nothing]");
  if (auto text = readCommandLine(app, argc, argv)) return *std::move(text);
  if (options.show && !options.seed && options.scriptPath.empty())
    throw UsageError("--show prints one world: give --seed or --script");
  return options;
}

}  // namespace gloo_bypass::sim
