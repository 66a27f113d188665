#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gloo_bypass::trainer::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDefaultLimit{100}; // only a hang reaches it

// Appends what is there; false at the end of the stream.
bool drain(int fd, std::string& into) {
  char buffer[65536];
  const ssize_t n = ::read(fd, buffer, sizeof(buffer));
  if (n > 0) {
    into.append(buffer, static_cast<size_t>(n));
  }
  return n > 0;
}

} // namespace

Process::Process(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment,
    size_t fileSizeLimit) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2 failed");
  }
  std::vector<char*> argv;
  for (auto& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const auto& [name, value] : environment) {
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    }
    if (fileSizeLimit != 0) {
      const rlimit limit{fileSizeLimit, fileSizeLimit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
  ::close(out[1]);
  ::close(err[1]);
  outFd_ = out[0];
  errFd_ = err[0];
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {outFd_, errFd_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

// False when both streams ended or the deadline passed.
bool Process::readSome(Clock::time_point deadline) {
  pollfd fds[2] = {{outFd_, POLLIN, 0}, {errFd_, POLLIN, 0}};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  if ((outFd_ < 0 && errFd_ < 0) || left <= 0 || ::poll(fds, 2, static_cast<int>(left)) <= 0) {
    return false;
  }
  if (fds[0].revents != 0 && !drain(outFd_, finished_.out)) {
    ::close(outFd_);
    outFd_ = -1;
  }
  if (fds[1].revents != 0 && !drain(errFd_, finished_.err)) {
    ::close(errFd_);
    errFd_ = -1;
  }
  return true;
}

bool Process::waitForOutput(const std::string& text, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (finished_.out.find(text) == std::string::npos) {
    if (!readSome(deadline)) {
      return false;
    }
  }
  return true;
}

Finished Process::wait(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (readSome(deadline)) {
  }
  if (outFd_ >= 0 || errFd_ >= 0) {
    return finished_; // still running: the destructor ends it
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  finished_.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return finished_;
}

Finished run(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
  return Process(std::move(arguments), environment).wait(kDefaultLimit);
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path().string() + "/ddp_train_test.XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("mkdtemp failed");
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

} // namespace gloo_bypass::trainer::testing
