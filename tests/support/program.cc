#include "tests/support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kReapLimit{5};  // after the pipes are closed or SIGKILL was sent

std::array<int, 2> makePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  return ends;
}

// False at the end of the stream.
bool readSome(int fd, std::string* text) {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got > 0) text->append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment, std::size_t fileSizeLimit)
    : start_(Clock::now()) {
  const auto out = makePipe();
  const auto err = makePipe();
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const auto& [name, value] : environment)
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    const rlimit limit{fileSizeLimit, fileSizeLimit};
    if (fileSizeLimit != 0) ::setrlimit(RLIMIT_FSIZE, &limit);
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  outPipe_ = out[0];
  errPipe_ = err[0];
}

Program::~Program() {
  if (pid_ > 0) finish(std::chrono::seconds(0));
}

bool Program::pump(Clock::time_point deadline) {
  std::array<pollfd, 2> polls{{{.fd = outPipe_, .events = POLLIN}, {.fd = errPipe_, .events = POLLIN}}};
  if (outPipe_ < 0 && errPipe_ < 0) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) return false;
  ::poll(polls.data(), polls.size(), static_cast<int>(left.count()));
  const auto take = [](int& fd, short events, std::string* text) {
    if (fd < 0 || events == 0 || readSome(fd, text)) return;
    ::close(fd);
    fd = -1;
  };
  take(outPipe_, polls[0].revents, &out_);
  take(errPipe_, polls[1].revents, &err_);
  return true;
}

bool Program::waitForOutput(const std::string& text, std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (out_.find(text) == std::string::npos)
    if (!pump(deadline)) return false;
  return true;
}

ProgramResult Program::finish(std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (pump(deadline)) {
  }
  ProgramResult result;
  result.timedOut = outPipe_ >= 0 || errPipe_ >= 0;
  if (result.timedOut) ::kill(pid_, SIGKILL);
  int status = 0;
  const auto reapDeadline = Clock::now() + kReapLimit;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > reapDeadline) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      break;
    }
    ::usleep(1000);
  }
  pid_ = -1;
  for (int* fd : {&outPipe_, &errPipe_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
  if (WIFEXITED(status)) result.exitStatus = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = out_;
  result.err = err_;
  result.elapsed = Clock::now() - start_;
  return result;
}

ProgramResult runProgram(const std::string& path, const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment, std::chrono::seconds limit) {
  return Program(path, arguments, environment).finish(limit);
}

}  // namespace gloo_bypass
