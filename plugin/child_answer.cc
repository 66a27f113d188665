#include "plugin/child_answer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;

// On the pipe: one of these, the text, and a zero. The zero and not the end of the pipe ends it, because a child that another
// thread forks meanwhile keeps the pipe open.
constexpr char kAnswer = '+';
constexpr char kRefusal = '-';

void quieten() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
}

[[noreturn]] void answerAndEnd(const std::function<std::string()>& ask, int pipe, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // The program's handlers, Python's among them, are not for this process.
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) ::signal(number, SIG_DFL);
  quieten();
  std::string line;
  try {
    line = kAnswer + ask();
  } catch (const std::exception& error) {
    line = kRefusal + std::string(error.what());
  } catch (...) {
    line = kRefusal + std::string("unknown error");
  }
  std::erase(line, '\0');
  const char* next = line.c_str();
  for (std::size_t left = line.size() + 1; left > 0;) {
    const ssize_t written = ::write(pipe, next, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    next += written;
    left -= static_cast<std::size_t>(written);
  }
  ::_exit(0);
}

enum class Read { kWhole, kEnded, kTooLate };

Read readLine(int pipe, Clock::time_point deadline, std::string& line) {
  std::array<char, 4096> bytes;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return Read::kTooLate;
    pollfd ready{pipe, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) < 1) continue;
    const ssize_t count = ::read(pipe, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Read::kEnded;
    line.append(bytes.data(), static_cast<std::size_t>(count));
    if (line.back() != '\0') continue;
    line.pop_back();
    return Read::kWhole;
  }
}

// How the child ended; 0 also if the program's own handler was quicker to ask.
int endOf(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 0;
  }
  return status;
}

}  // namespace

ChildAnswer answerOfChild(const std::function<std::string()>& ask, std::chrono::milliseconds bound) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {false, fmt::format("no pipe: {}", std::strerror(errno))};
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return {false, fmt::format("no process could be forked: {}", std::strerror(errno))};
  if (child == 0) answerAndEnd(ask, writing.get(), parent);
  writing.reset();
  std::string line;
  const Read read = readLine(reading.get(), Clock::now() + bound, line);
  if (read != Read::kEnded) ::kill(child, SIGKILL);  // it has nothing left to do, or is too late
  const int status = endOf(child);
  if (read == Read::kTooLate) return {false, fmt::format("no answer within {} s", bound.count() / 1000.0)};
  if (read == Read::kEnded || line.empty()) {
    return {false, WIFSIGNALED(status)
                       ? fmt::format("ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                       : std::string("ended without an answer")};
  }
  return {line.front() == kAnswer, line.substr(1)};
}

}  // namespace gloo_bypass
