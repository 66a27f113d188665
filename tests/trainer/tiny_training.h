// Starts ddp_train with the tiny model as users do. DDP_TRAIN names the program.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace gloo_bypass::trainer::testing {

using Environment = std::map<std::string, std::string>;
constexpr std::chrono::seconds kLimit{100};  // a bound that only a hang reaches

// For a rank that no launcher of ours starts.
inline Environment rankOf(int rank, int worldSize, uint16_t port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(worldSize)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

// With C library calls that fail or take long: tests/support/failing_calls.cc.
inline Environment withFailing(const std::string& variable, const std::string& value) {
  return {{"LD_PRELOAD", std::getenv("FAILING_CALLS")}, {variable, value}};
}

// fileSizeLimit: see Program.
inline Program startTraining(std::vector<std::string> flags, Environment environment = {},
                             std::size_t fileSizeLimit = 0) {
  flags.insert(flags.begin(), {"--seq-length", "16"});
  if (std::ranges::find(flags, "--model-config") == flags.end()) {
    flags.insert(flags.begin(), {"--model", "tiny"});
  }
  environment.insert({{"RANK", ""},
                      {"WORLD_SIZE", ""},
                      {"MASTER_ADDR", ""},
                      {"MASTER_PORT", ""},
                      {"GLOO_DEVICE_TRANSPORT", ""},
                      {"TORCH_CPP_LOG_LEVEL", "ERROR"}});
  return Program(std::getenv("DDP_TRAIN"), flags, environment, fileSizeLimit);
}

inline ProgramResult train(const std::vector<std::string>& flags, const Environment& environment = {}) {
  return startTraining(flags, environment).finish(kLimit);
}

// The processes that a launcher has started, by rank.
inline std::map<int, pid_t> ranksOf(pid_t launcher) {
  const std::string pid = std::to_string(launcher);
  std::istringstream children(contentsOf("/proc/" + pid + "/task/" + pid + "/children"));
  std::map<int, pid_t> ranks;
  for (pid_t child; children >> child;) {
    const std::string environment = std::string(1, '\0') + contentsOf("/proc/" + std::to_string(child) + "/environ");
    if (const size_t at = environment.find(std::string("\0RANK=", 6)); at != std::string::npos) {
      ranks[std::atoi(environment.c_str() + at + 6)] = child;
    }
  }
  return ranks;
}

// Kills `rank` after the run has written the record of `step` in this generation.
inline void killAt(Program& process, int rank, const std::string& marker) {
  ASSERT_TRUE(process.waitForOutput(marker, kLimit));
  const auto ranks = ranksOf(process.pid());
  ASSERT_TRUE(ranks.contains(rank)) << ranks.size();
  ASSERT_EQ(::kill(ranks.at(rank), SIGKILL), 0);
}

}  // namespace gloo_bypass::trainer::testing
