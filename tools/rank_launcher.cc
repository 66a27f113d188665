#include "tools/rank_launcher.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "tools/perf_error.h"

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval{200};  // SIGCHLD ends the wait sooner
constexpr std::chrono::seconds kKillBound{10};           // for the kernel to end killed processes

sigset_t childSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  return set;
}

}  // namespace

RankProcesses::RankProcesses(int count, const std::function<int(int rank)>& body) {
  std::fflush(nullptr);  // else each child would print what is buffered here
  const sigset_t signals = childSignal();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      sigprocmask(SIG_SETMASK, &before, nullptr);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(kExitFailure);
      std::exit(body(rank));
    }
    if (pid < 0) {
      const int error = errno;
      killRest();
      throw PerfError(fmt::format("cannot start rank {}: {}", rank, std::strerror(error)));
    }
    ranks_.push_back({.pid = pid});
  }
}

RankProcesses::~RankProcesses() { killRest(); }

int RankProcesses::reap(std::vector<int>* failures) {
  int running = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ended) continue;
    if (::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) {
      ++running;
      continue;
    }
    rank.ended = true;
    const bool good = WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0;
    if (!good && !rank.killedByUs && failures != nullptr) failures->push_back(static_cast<int>(i));
  }
  return running;
}

std::optional<RankProcesses::Failure> RankProcesses::supervise(std::chrono::duration<double> deadline) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline);
  std::optional<Clock::time_point> graceEnd;
  std::vector<int> failures;
  const sigset_t signals = childSignal();
  while (reap(&failures) > 0) {
    const auto now = Clock::now();
    if (!failures.empty() && !graceEnd) graceEnd = now + kGrace;
    if (graceEnd && now >= *graceEnd) break;
    if (now >= end) {
      killRest();
      return Failure{-1, fmt::format("not done after {} s (--deadline); all ranks were ended", deadline.count())};
    }
    const timespec wait{0, std::chrono::nanoseconds(kPollInterval).count()};
    sigtimedwait(&signals, nullptr, &wait);
  }
  if (failures.empty()) return std::nullopt;
  killRest();
  const auto bySignal =
      std::find_if(failures.begin(), failures.end(), [this](int rank) { return WIFSIGNALED(ranks_[rank].status); });
  const int first = bySignal != failures.end() ? *bySignal : failures.front();
  return Failure{first, describe(first)};
}

void RankProcesses::killRest() {
  for (Rank& rank : ranks_) {
    if (rank.ended) continue;
    rank.killedByUs = true;
    ::kill(rank.pid, SIGKILL);
  }
  const auto end = Clock::now() + kKillBound;
  const sigset_t signals = childSignal();
  while (reap(nullptr) > 0 && Clock::now() < end) {
    const timespec wait{0, std::chrono::nanoseconds(kPollInterval).count()};
    sigtimedwait(&signals, nullptr, &wait);
  }
}

std::string RankProcesses::describe(int rank) const {
  const Rank& ended = ranks_[static_cast<std::size_t>(rank)];
  const std::string how = WIFSIGNALED(ended.status)
                              ? fmt::format("was ended by signal {} ({})", WTERMSIG(ended.status),
                                            ::strsignal(WTERMSIG(ended.status)))
                              : fmt::format("failed with exit status {}", WEXITSTATUS(ended.status));
  return fmt::format("rank {} (pid {}) {}; the other ranks were ended", rank, ended.pid, how);
}

}  // namespace gloo_bypass
