// Starts the ranks of one machine as copies of this program and answers for them (--spawn N).
//
// Each child gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1), MASTER_PORT (a free one)
// and, when unset, OMP_NUM_THREADS = max(1, cores / N). SIGINT, SIGTERM and SIGHUP are passed on. When a child
// fails, the others get a grace period to say what they saw, then SIGTERM, then SIGKILL. Children die with their parent.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo_bypass::trainer {

struct LaunchTimes {
  std::chrono::milliseconds grace{2000};     // from the first failure to SIGTERM
  std::chrono::milliseconds killAfter{3000}; // from SIGTERM to SIGKILL
};

// Runs arguments[0] `ranks` times with `arguments` and returns the exit status of the child that failed first (128 +
// signal number for a signal), or 0. Must be called before this process starts threads of its own that hold locks
// needed between fork and exec (none are).
int launchRanks(const std::vector<std::string>& arguments, int ranks, const LaunchTimes& times = {});

// The arguments without --spawn and its value, argv[0] replaced by this program's own path.
std::vector<std::string> childArguments(int argc, const char* const* argv);

} // namespace gloo_bypass::trainer
