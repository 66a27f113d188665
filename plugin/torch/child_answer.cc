#include "plugin/torch/child_answer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

// On the pipe: one of these, the text, and a zero. The zero or the child's end terminates the text, not the end of the
// pipe: a child that another thread forks meanwhile keeps the pipe open.
constexpr char kAnswer = '+';
constexpr char kRefusal = '-';

// For kernels that do not report the end of a child.
constexpr std::chrono::milliseconds kAskEvery{100};
// How long a killed child may take to end.
constexpr std::chrono::seconds kEndBound{5};

void quieten() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
}

[[noreturn]] void answerAndEnd(const std::function<std::string()>& ask, int pipe, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // The program's handlers, Python's among them, must not run in this process.
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

// A forked child. It holds a descriptor if the kernel has those: the child's number may belong to another process if
// the program reaps all children.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int fd() const { return fd_.get(); }  // readable when it has ended; -1: not supported by the kernel, use hasEnded

  // Polls, and records how it ended; nothing is recorded if the program's own handler, or the kernel, reaped it first.
  bool hasEnded() {
    if (ended_) return true;
    const pid_t found = ::waitpid(pid_, &status_, WNOHANG);
    return ended_ = found == pid_ || (found < 0 && errno == ECHILD);
  }

  void kill() {
    if (ended_) return;
    if (fd_) {
      ::syscall(SYS_pidfd_send_signal, fd_.get(), SIGKILL, nullptr, 0);
    } else {
      ::kill(pid_, SIGKILL);
    }
  }

  // A child that is stuck in the kernel may outlive the bound, and no one reaps it; that is better than an endless
  // wait.
  void awaitEnd(Clock::time_point deadline) {
    while (!hasEnded() && Clock::now() < deadline) {
      pollfd ready{fd_.get(), POLLIN, 0};
      ::poll(&ready, 1, fd_ ? 100 : 1);
    }
  }

  int status() const { return status_; }

 private:
  const pid_t pid_;
  const FileDescriptor fd_;
  int status_ = 0;
  bool ended_ = false;
};

enum class Read { kWhole, kEnded, kTooLate };

Read readLine(int pipe, Child& child, Clock::time_point deadline, std::string& line) {
  std::array<char, 4096> bytes;
  for (bool ended = false;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return Read::kTooLate;
    std::array<pollfd, 2> ready{pollfd{pipe, POLLIN, 0}, pollfd{child.fd(), POLLIN, 0}};
    const auto longest = child.fd() < 0 ? std::min(left, kAskEvery) : left;
    ::poll(ready.data(), ready.size(), ended ? 0 : static_cast<int>(longest.count()));
    if (ready[0].revents == 0) {
      if (ended) return Read::kEnded;
      ended = child.hasEnded();  // its output is in the pipe by now: read once more
      continue;
    }
    const ssize_t count = ::read(pipe, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Read::kEnded;
    line.append(bytes.data(), static_cast<std::size_t>(count));
    if (line.back() != '\0') continue;
    line.pop_back();
    return Read::kWhole;
  }
}

}  // namespace

ChildAnswer answerOfChild(const std::function<std::string()>& ask, std::chrono::milliseconds bound) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {false, fmt::format("no pipe: {}", std::strerror(errno))};
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t forked = ::fork();
  if (forked < 0) return {false, fmt::format("no process could be forked: {}", std::strerror(errno))};
  if (forked == 0) answerAndEnd(ask, writing.get(), parent);
  Child child(forked);
  writing.reset();
  std::string line;
  const Read read = readLine(reading.get(), child, Clock::now() + bound, line);
  if (read != Read::kEnded) child.kill();  // it has nothing left to do, or is too late
  child.awaitEnd(Clock::now() + kEndBound);
  const int status = child.status();
  if (read == Read::kTooLate) return {false, fmt::format("no answer within {} s", bound.count() / 1000.0)};
  if (read == Read::kEnded || line.empty()) {
    return {false, WIFSIGNALED(status)
                       ? fmt::format("ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                       : std::string("ended without an answer")};
  }
  return {line.front() == kAnswer, line.substr(1)};
}

}  // namespace gloo_bypass
