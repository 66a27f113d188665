// Starts the ranks of a run on this machine, supervises them, and ends them together.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gloo_bypass {

struct RankTimes {
  std::chrono::milliseconds grace{2000};      // from the first failure to SIGTERM: the others say what they saw
  std::chrono::milliseconds killAfter{3000};  // from SIGTERM, or a signal passed on, to SIGKILL
  std::optional<std::chrono::duration<double>> limit{};  // for the whole run: SIGKILL then
  const char* limitName = "the time limit";              // as the message calls it
};

// How a run ended.
struct RanksEnd {
  // 0: all ended well. Else that of the rank at fault (128 + signal number for a signal), 128 + signal number for a
  // signal that was passed on, or kExitFailure at the limit.
  int exitStatus = 0;
  int rank = -1;            // the rank at fault; -1: none in particular
  std::string message;      // one line that says so; empty where all ended well
  std::vector<int> lost{};  // ranks that failed first, not as a consequence: all ended by a signal, else `rank`
};

// Child processes, one a rank. Made and used by one thread, before this process has any other thread (it forks). From
// the constructor to the destructor SIGCHLD and, unless they are ignored, SIGINT, SIGTERM and SIGHUP are blocked in
// this thread and in those that it starts: supervise() takes them.
class RankProcesses {
 public:
  // `body` runs in the child, with RANK set in its environment and this process's signals as they were; its result is
  // the exit status. Children die with this thread. Throws ProgramError.
  RankProcesses(int count, const std::function<int(int rank)>& body);
  // Kills and reaps what is left.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Waits for all. SIGINT, SIGTERM and SIGHUP are passed on, unless ignored. Once a rank fails, the others get the
  // grace period, then SIGTERM, then SIGKILL. At fault is the rank that failed first, but one ended by a signal before
  // all that exited: it took them along, whoever was reaped first. SIGPIPE alone does not count as that: it is what
  // writing to a rank that has failed ends in.
  RanksEnd supervise(const RankTimes& times = {});

 private:
  struct Rank {
    pid_t pid = -1;
    int status = 0;  // of waitpid
    bool ended = false;
    bool endedByUs = false;  // a signal of ours was on its way: how it ended says nothing
  };
  // Notes who has ended. Returns the number of ranks still running.
  int reap();
  void restoreSignals();
  void signalRest(int signal);
  void killRest();
  std::optional<int> rankAtFault() const;
  RanksEnd endOf(int rank) const;

  std::vector<Rank> ranks_;
  std::vector<int> failures_;  // in the order in which they were reaped
  sigset_t awaited_{}, before_{};
  struct sigaction childBefore_{};  // of SIGCHLD
};

}  // namespace gloo_bypass
