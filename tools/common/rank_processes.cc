#include "tools/common/rank_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP};
constexpr std::chrono::milliseconds kPollInterval{100};  // bound on noticing a deadline; signals wake at once
constexpr std::chrono::seconds kKillBound{10};           // for the kernel to end killed processes

// The signal that came, or -1 after `bound`, which is below a second. The lowest comes first: what is to be passed on
// before SIGCHLD.
int nextSignal(const sigset_t& awaited, std::chrono::milliseconds bound = kPollInterval) {
  const timespec wait{0, std::chrono::nanoseconds(bound).count()};
  return ::sigtimedwait(&awaited, nullptr, &wait);
}

// As nohup has it.
bool isIgnored(int signal) {
  struct sigaction action{};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool endedBySignal(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
// By a signal that is no consequence of another rank's end, as SIGPIPE is.
bool endedByAnother(int status) { return WIFSIGNALED(status) && !endedBySignal(status, SIGPIPE); }
int exitStatusOfWait(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

RankProcesses::RankProcesses(int count, const std::function<int(int rank)>& body) {
  std::fflush(nullptr);  // else each child would print what is buffered here
  sigemptyset(&awaited_);
  sigaddset(&awaited_, SIGCHLD);
  for (const int signal : kPassedOn)
    if (!isIgnored(signal)) sigaddset(&awaited_, signal);
  ::pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  // Where it is ignored, which a parent may hand down, the kernel keeps no statuses.
  struct sigaction byDefault{};
  byDefault.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &byDefault, &childBefore_);
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(kExitFailure);  // it ended before the line above
      restoreSignals();
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      std::exit(body(rank));
    }
    if (pid < 0) {
      const int error = errno;
      killRest();
      restoreSignals();
      throw ProgramError(fmt::format("cannot start rank {}: {}", rank, std::strerror(error)));
    }
    ranks_.push_back({.pid = pid});
  }
}

RankProcesses::~RankProcesses() {
  killRest();
  restoreSignals();
}

void RankProcesses::restoreSignals() {
  ::sigaction(SIGCHLD, &childBefore_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int RankProcesses::reap() {
  int running = 0;
  const auto before = static_cast<std::ptrdiff_t>(failures_.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ended) continue;
    if (::waitpid(rank.pid, &rank.status, WNOHANG) != rank.pid) {
      ++running;
      continue;
    }
    rank.ended = true;
    if (exitStatusOfWait(rank.status) != 0 && !rank.endedByUs) failures_.push_back(static_cast<int>(i));
  }
  // Of those that ended since the last time: whom SIGPIPE ended was writing to one that had failed.
  std::stable_partition(failures_.begin() + before, failures_.end(), [this](int rank) {
    return !endedBySignal(ranks_[static_cast<std::size_t>(rank)].status, SIGPIPE);
  });
  return running;
}

RanksEnd RankProcesses::supervise(const RankTimes& times) {
  const auto begin = Clock::now();
  std::optional<Clock::time_point> terminateAt, killAt;
  int passedOn = 0;
  while (reap() > 0) {
    const auto now = Clock::now();
    if (times.limit && now - begin >= *times.limit) {
      killRest();
      if (!failures_.empty()) break;
      return {kExitFailure,
              -1,
              fmt::format("not done after {} s ({}); all ranks were ended", times.limit->count(), times.limitName),
              {}};
    }
    if (killAt && now >= *killAt) {
      killRest();
      break;
    }
    if (!failures_.empty() && !terminateAt) terminateAt = now + times.grace;
    if (terminateAt && now >= *terminateAt && !killAt) {
      signalRest(SIGTERM);
      killAt = now + times.killAfter;
    }
    const int signal = nextSignal(awaited_);
    if (signal <= 0 || signal == SIGCHLD) continue;
    passedOn = signal;
    signalRest(signal);
    if (!killAt) killAt = now + times.killAfter;
  }
  // One that was sent to the ranks as well may have ended them before it was looked for here.
  if (const int signal = nextSignal(awaited_, std::chrono::milliseconds(0)); signal > 0 && signal != SIGCHLD)
    passedOn = signal;
  if (passedOn != 0)
    return {128 + passedOn, -1, fmt::format("signal {} ({}) ended all ranks", passedOn, ::strsignal(passedOn)), {}};
  const auto rank = rankAtFault();
  return rank ? endOf(*rank) : RanksEnd{};
}

void RankProcesses::signalRest(int signal) {
  for (Rank& rank : ranks_) {
    if (rank.ended) continue;
    rank.endedByUs = true;
    ::kill(rank.pid, signal);
  }
}

void RankProcesses::killRest() {
  signalRest(SIGKILL);
  const auto end = Clock::now() + kKillBound;
  while (reap() > 0 && Clock::now() < end) (void)nextSignal(awaited_);
}

std::optional<int> RankProcesses::rankAtFault() const {
  if (failures_.empty()) return std::nullopt;
  const auto took = std::find_if(failures_.begin(), failures_.end(), [this](int rank) {
    return endedByAnother(ranks_[static_cast<std::size_t>(rank)].status);
  });
  return took != failures_.end() ? *took : failures_.front();
}

RanksEnd RankProcesses::endOf(int rank) const {
  const Rank& ended = ranks_[static_cast<std::size_t>(rank)];
  const std::string how = WIFSIGNALED(ended.status) ? fmt::format("was ended by signal {} ({})", WTERMSIG(ended.status),
                                                                  ::strsignal(WTERMSIG(ended.status)))
                                                    : fmt::format("exited with status {}", WEXITSTATUS(ended.status));
  std::vector<int> lost;
  for (const int failed : failures_)
    if (failed == rank || endedByAnother(ranks_[static_cast<std::size_t>(failed)].status)) lost.push_back(failed);
  return {exitStatusOfWait(ended.status), rank,
          fmt::format("rank {} (pid {}) {}{}", rank, ended.pid, how,
                      ranks_.size() > 1 ? "; the other ranks were ended" : ""),
          std::move(lost)};
}

}  // namespace gloo_bypass
