// Who this process is among the ranks, from the environment that a launcher sets.
//
// RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun, --spawn) come first; Slurm's and Open MPI's (or PMI's)
// rank and size stand in for the first two. Without any of them: a single rank. Read once, at the start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace gloo_bypass::trainer {

struct RankEnvironment {
  int rank = 0;
  int worldSize = 1;
  bool launched = false;  // false: a single rank that needs no rendezvous
  std::string masterAddress = "127.0.0.1";
  uint16_t masterPort = 29500;  // PyTorch's default
  bool agentStore = false;      // torchrun's agent serves the store: rank 0 must not
  std::string storePrefix;      // torchrun: one a restart
};

// `get` returns a variable's value or nullptr, as getenv does. Throws ProgramError naming variable, value and what
// is allowed.
RankEnvironment readRankEnvironment(const std::function<const char*(const char*)>& get);

}  // namespace gloo_bypass::trainer
