#include "trainer/launcher.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "trainer/error.h"
#include "trainer/free_port.h"
#include "trainer/program_path.h"

extern char** environ;

namespace gloo_bypass::trainer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP};
constexpr std::chrono::milliseconds kPollInterval{100}; // bound on noticing a deadline; signals wake at once

class EnvironmentBlock {
 public:
  EnvironmentBlock() {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const size_t equals = text.find('=');
      if (equals != std::string_view::npos) {
        values_[std::string(text.substr(0, equals))] = text.substr(equals + 1);
      }
    }
  }
  void set(const std::string& variable, const std::string& value) { values_[variable] = value; }
  void setIfMissing(const std::string& variable, const std::string& value) { values_.try_emplace(variable, value); }
  std::vector<std::string> entries() const {
    std::vector<std::string> entries;
    for (const auto& [variable, value] : values_) {
      entries.push_back(variable + "=" + value);
    }
    return entries;
  }

 private:
  std::map<std::string, std::string> values_;
};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (auto& text : strings) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

pid_t startChild(std::vector<std::string> arguments, std::vector<std::string> environment, const sigset_t& oldMask) {
  const auto argv = pointers(arguments);
  const auto envp = pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) {
    return pid;
  }
  // Only async-signal-safe calls from here to exec.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(128 + SIGKILL); // the parent ended before the line above
  }
  ::sigprocmask(SIG_SETMASK, &oldMask, nullptr);
  ::execve(argv[0], argv.data(), envp.data());
  const char message[] = "ddp_train: cannot execute the program anew\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, message, sizeof(message) - 1);
  ::_exit(127);
}

// The children and what has become of them.
class Family {
 public:
  void add(pid_t pid, int rank) { alive_[pid] = rank; }
  bool empty() const { return alive_.empty(); }
  bool hasFailed() const { return firstFailure_.has_value(); }
  int exitCode() const { return firstFailure_.value_or(0); }
  void signalAll(int signal) const {
    for (const auto& [pid, rank] : alive_) {
      ::kill(pid, signal);
    }
  }
  // Collects every child that has ended.
  void reap() {
    struct Ended {
      int rank, status;
    };
    std::vector<Ended> ended;
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (const auto found = alive_.find(pid); found != alive_.end()) {
        ended.push_back({found->second, status});
        alive_.erase(found);
      }
    }
    // Where several have ended since the last time: whom a signal ended took the others along, not the other way round.
    std::stable_partition(ended.begin(), ended.end(), [](const Ended& e) { return WIFSIGNALED(e.status); });
    for (const Ended& e : ended) {
      note(e.rank, e.status);
    }
  }

 private:
  void note(int rank, int status) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == 0 || firstFailure_) {
      return;
    }
    firstFailure_ = code;
    const std::string how = WIFSIGNALED(status)
        ? fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
        : fmt::format("exited with status {}", code);
    fmt::print(stderr, "ddp_train: rank {} {}{}\n", rank, how, alive_.empty() ? "" : "; stopping the others");
  }

  std::map<pid_t, int> alive_;
  std::optional<int> firstFailure_;
};

int superviseUntilEmpty(Family& family, const sigset_t& awaited, const LaunchTimes& times) {
  std::optional<Clock::time_point> termAt, killAt;
  int interruptedBy = 0;
  while (!family.empty()) {
    const timespec interval{0, std::chrono::nanoseconds(kPollInterval).count()};
    const int signal = ::sigtimedwait(&awaited, nullptr, &interval);
    if (signal > 0 && signal != SIGCHLD) {
      interruptedBy = signal;
      family.signalAll(signal);
      if (!killAt) {
        killAt = Clock::now() + times.killAfter;
      }
    }
    family.reap();
    const auto now = Clock::now();
    if (family.hasFailed() && !termAt) {
      termAt = now + times.grace;
    }
    if (termAt && now >= *termAt && !killAt) {
      family.signalAll(SIGTERM);
      killAt = now + times.killAfter;
    }
    if (killAt && now >= *killAt) {
      family.signalAll(SIGKILL);
    }
  }
  return interruptedBy != 0 ? 128 + interruptedBy : family.exitCode();
}

} // namespace

int launchRanks(const std::vector<std::string>& arguments, int ranks, const LaunchTimes& times) {
  sigset_t awaited, oldMask;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (const int signal : kForwarded) {
    sigaddset(&awaited, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &awaited, &oldMask);

  EnvironmentBlock environment;
  const auto cores = std::max(1u, std::thread::hardware_concurrency());
  environment.setIfMissing("OMP_NUM_THREADS", std::to_string(std::max(1u, cores / static_cast<unsigned>(ranks))));
  environment.set("WORLD_SIZE", std::to_string(ranks));
  environment.set("LOCAL_WORLD_SIZE", std::to_string(ranks));
  environment.set("MASTER_ADDR", "127.0.0.1");
  // Another program can still take it before rank 0 does; rank 0 then says so and ends.
  environment.set("MASTER_PORT", std::to_string(freePort()));
  environment.set("TORCHELASTIC_USE_AGENT_STORE", "False"); // a --spawn inside torchrun has its own store
  Family family;
  for (int rank = 0; rank < ranks; ++rank) {
    environment.set("RANK", std::to_string(rank));
    environment.set("LOCAL_RANK", std::to_string(rank));
    const pid_t pid = startChild(arguments, environment.entries(), oldMask);
    if (pid < 0) {
      const int error = errno;
      family.signalAll(SIGKILL);
      superviseUntilEmpty(family, awaited, times);
      throw runFailed(fmt::format("cannot start rank {}: {}", rank, std::strerror(error)));
    }
    family.add(pid, rank);
  }
  const int code = superviseUntilEmpty(family, awaited, times);
  ::pthread_sigmask(SIG_SETMASK, &oldMask, nullptr);
  return code;
}

std::vector<std::string> childArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments{programPath()};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument(argv[i]);
    if (argument == "--spawn") {
      ++i;
    } else if (!argument.starts_with("--spawn=")) {
      arguments.emplace_back(argument);
    }
  }
  return arguments;
}

} // namespace gloo_bypass::trainer
