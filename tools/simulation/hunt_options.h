// The command line of hunt.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "tools/simulation/worlds/campaign.h"

namespace gloo_bypass::sim {

struct HuntOptions {
  CampaignSettings campaign;
  std::optional<std::uint64_t> seed;  // this world alone
  std::string scriptPath;             // or this one
  bool show = false;                  // print the script of a world that is run alone
};

// The options, or text to print (--help, --version). Throws UsageError, one line.
std::variant<HuntOptions, std::string> parseHuntOptions(int argc, const char* const* argv);

}  // namespace gloo_bypass::sim
