#include "trainer/config/averaging_options.h"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trainer/config/joined.h"
#include "trainer/config/named_choices.h"

namespace gloo_bypass::trainer {
namespace {

const NamedChoices<AveragingMethod> kMethods{{"none", AveragingMethod::kNone},
                                             {"local-sgd", AveragingMethod::kLocalSgd},
                                             {"diloco", AveragingMethod::kDiLoCo},
                                             {"central", AveragingMethod::kCentral},
                                             {"asynchronous", AveragingMethod::kAsynchronous},
                                             {"gossip", AveragingMethod::kGossip}};
const NamedChoices<StalenessPenalty> kPenalties{{"none", StalenessPenalty::kNone},
                                                {"inverse", StalenessPenalty::kInverse}};
const NamedChoices<GossipTopology> kTopologies{{"ring", GossipTopology::kRing},
                                               {"exponential", GossipTopology::kExponential},
                                               {"random", GossipTopology::kRandom}};

}  // namespace

void addAveragingOptions(CLI::App& app, AveragingOptions& o) {
  const char* group = "Low communication";
  // The first of them: the others' checks, which run in this order, ask for the method.
  app.add_option_function<std::string>(
         "--average", [&o](const std::string& text) { o.method = kMethods.at(text); },
         "instead of reducing every gradient: the mean of the parameters each --inner-steps (local-sgd), an outer step "
         "by it (diloco), "
         "gradients to rank 0 and parameters back (central), the same without waiting for others (asynchronous, "
         "without barriers), the mean "
         "with neighbours each step (gossip)")
      ->check(CLI::IsMember(namesOf(kMethods)))
      ->group(group)
      ->default_str("none");
  const auto isOf = [&o](std::vector<AveragingMethod> methods) {
    return CLI::Validator(
        [&o, methods](const std::string&) -> std::string {
          if (std::find(methods.begin(), methods.end(), o.method) != methods.end()) return {};
          std::vector<std::string> names;
          for (const auto method : methods) names.push_back(nameOf(kMethods, method));
          return "is for --average " + joined(names, " or ");
        },
        "");
  };
  app.add_option("--inner-steps", o.innerSteps, "local-sgd, diloco: steps between two meetings of the ranks")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->check(isOf({AveragingMethod::kLocalSgd, AveragingMethod::kDiLoCo}))
      ->group(group);
  app.add_option("--outer-lr", o.outerRate, "diloco: rate of the outer step")
      ->check(CLI::Range(0.0, 1e3))
      ->check(isOf({AveragingMethod::kDiLoCo}))
      ->group(group);
  app.add_option("--outer-momentum", o.outerMomentum, "diloco: Nesterov momentum of the outer step")
      ->check(CLI::Range(0.0, 0.999999))
      ->check(isOf({AveragingMethod::kDiLoCo}))
      ->group(group);
  app.add_option("--staleness-bound", o.stalenessBound,
                 "asynchronous: steps that a rank may be ahead of the slowest before it waits (-1: "
                 "any number)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1'000'000'000}))
      ->check(isOf({AveragingMethod::kAsynchronous}))
      ->group(group);
  app.add_option_function<std::string>(
         "--staleness-penalty", [&o](const std::string& text) { o.stalenessPenalty = kPenalties.at(text); },
         "asynchronous: divide a gradient's rate by its staleness, the updates that came before it since its "
         "parameters (inverse)")
      ->check(CLI::IsMember(namesOf(kPenalties)))
      ->check(isOf({AveragingMethod::kAsynchronous}))
      ->group(group)
      ->default_str("none");
  app.add_option_function<std::string>(
         "--gossip-topology", [&o](const std::string& text) { o.topology = kTopologies.at(text); },
         "gossip: the two neighbours on a ring, one rank at a distance of 1, 2, 4, ... in turn, or random pairs")
      ->check(CLI::IsMember(namesOf(kTopologies)))
      ->check(isOf({AveragingMethod::kGossip}))
      ->group(group)
      ->default_str("ring");
}

std::string crossCheck(const AveragingOptions& o, bool hasGroup) {
  if (o.isUsed() && !hasGroup) {
    return "--average is between ranks: there is one only with --no-ddp";
  }
  return {};
}

void addToTrajectory(const AveragingOptions& o, nlohmann::json& trajectory) {
  if (!o.isUsed()) return;
  nlohmann::json averaging{{"method", nameOf(kMethods, o.method)}};
  if (o.method == AveragingMethod::kLocalSgd || o.method == AveragingMethod::kDiLoCo)
    averaging["inner_steps"] = o.innerSteps;
  if (o.method == AveragingMethod::kDiLoCo) {
    averaging["outer_lr"] = o.outerRate;
    averaging["outer_momentum"] = o.outerMomentum;
  }
  if (o.isAsynchronous()) {
    averaging["staleness_bound"] = o.stalenessBound;
    averaging["staleness_penalty"] = nameOf(kPenalties, o.stalenessPenalty);
  }
  if (o.method == AveragingMethod::kGossip) averaging["topology"] = nameOf(kTopologies, o.topology);
  trajectory["averaging"] = std::move(averaging);
}

}  // namespace gloo_bypass::trainer
