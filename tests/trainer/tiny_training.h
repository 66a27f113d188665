// Starts ddp_train with the tiny model as users do. DDP_TRAIN names the program.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "tools/common/free_port.h"

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

// How ranks with these flags end that no launcher of ours starts, by rank.
inline std::vector<ProgramResult> trainApart(const std::vector<std::vector<std::string>>& flags) {
  const uint16_t port = freePort();
  std::vector<std::unique_ptr<Program>> ranks;
  for (const auto& ofRank : flags) {
    const auto place = rankOf(static_cast<int>(ranks.size()), static_cast<int>(flags.size()), port);
    ranks.emplace_back(new Program(startTraining(ofRank, place)));
  }
  std::vector<ProgramResult> finished;
  for (const auto& rank : ranks) finished.push_back(rank->finish(kLimit));
  return finished;
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

// Kills `rank` once the run has written `marker`. Its process; 0: a failure of the test.
inline pid_t killAt(Program& process, int rank, const std::string& marker) {
  EXPECT_TRUE(process.waitForOutput(marker, kLimit));
  const auto ranks = ranksOf(process.pid());
  const pid_t victim = ranks.contains(rank) ? ranks.at(rank) : 0;
  EXPECT_GT(victim, 0) << ranks.size();
  EXPECT_TRUE(victim > 0 && ::kill(victim, SIGKILL) == 0);
  return victim;
}

// Rank 1 is killed: the whole run ends and says so.
inline void expectEndsWhenARankIsKilled(Program& process, const std::string& marker) {
  const pid_t victim = killAt(process, 1, marker);
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 128 + SIGKILL) << finished.err;
  EXPECT_NE(finished.err.find("rank 1 (pid " + std::to_string(victim) + ") was ended by signal 9"), std::string::npos)
      << finished.err;
}

}  // namespace gloo_bypass::trainer::testing
