// Starts the ranks of a run on this machine, and ends them together.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gloo_bypass {

// Child processes, one a rank. Made and used by one thread, before this process has any other thread (it forks).
class RankProcesses {
 public:
  // `body` runs in the child; its result is the exit status. Children die with this process.
  RankProcesses(int count, const std::function<int(int rank)>& body);
  // Kills and reaps what is left.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  struct Failure {
    int rank = -1;        // -1: none in particular
    std::string message;  // one line, naming the rank
  };
  // Waits for all. Once a rank fails the others get kGrace to say what they saw, and are killed then. None if all ended
  // well; else the rank that failed first (one ended by a signal goes before one that exited).
  std::optional<Failure> supervise(std::chrono::duration<double> deadline);

  static constexpr std::chrono::milliseconds kGrace{1500};

 private:
  struct Rank {
    pid_t pid = -1;
    bool ended = false;
    bool killedByUs = false;
    int status = 0;
  };
  // Returns the number of ranks still running.
  int reap(std::vector<int>* failures);
  void killRest();
  std::string describe(int rank) const;

  std::vector<Rank> ranks_;
};

}  // namespace gloo_bypass
