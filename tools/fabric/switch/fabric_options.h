// The command line of `fabric`.
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/switch/fabric_capture.h"
#include "tools/fabric/switch/fabric_switch.h"

namespace gloo_bypass::fabric {

struct FabricOptions {
  std::string configPath;  // empty: flags alone
  bool checkOnly = false;
  bool json = false;               // what --check prints
  std::vector<std::string> netem;  // HOST=INTERFACE of each: print these hosts' script for tc, and end
  std::vector<DescriptionFlag> flags;
  std::size_t mtu = 1500;
  SwitchLimits limits;
  bool live = false;
  std::string statsPath, samplesPath;  // empty: none
  CaptureOptions capture;
  double intervalSeconds = 1;
  double durationSeconds = 0;  // 0: until a signal
  bool normalPriority = false;
  std::string ealArguments;
};

// The options, or text to print (--help, --version). Throws UsageError, one line.
std::variant<FabricOptions, std::string> parseFabricOptions(int argc, const char* const* argv);

}  // namespace gloo_bypass::fabric
