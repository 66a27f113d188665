#include "trainer/files/temporary_path.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace gloo_bypass::trainer {
namespace {

namespace fs = std::filesystem;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr std::string_view kMark = ".tmp.";

struct Registry {
  std::mutex mutex;  // held while a name changes, and from a signal to the end
  std::set<std::string> paths;
};

// Never destroyed: a signal may come last.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

int signalPipe[2] = {-1, -1};

// A terminal and the launcher may send the same signal at once; who sends it again later does not want to wait.
constexpr time_t kRepeatSeconds = 5;
volatile std::sig_atomic_t toldAlready = 0;
volatile time_t toldAt = 0;

// Only what a handler may do: the thread does the rest.
void tellOfSignal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (toldAlready != 0) {
    if (now.tv_sec - toldAt >= kRepeatSeconds) {
      ::_exit(128 + signal);
    }
    return;
  }
  toldAt = now.tv_sec;
  toldAlready = 1;
  const auto number = static_cast<unsigned char>(signal);
  if (::write(signalPipe[1], &number, 1) != 1) {
    ::_exit(128 + signal);
  }
}

[[noreturn]] void endBySignal(int number) {
  registry().mutex.lock();  // whoever finishes a file now has done so, or never will
  for (const auto& path : registry().paths) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  std::signal(number, SIG_DFL);
  sigset_t mine;
  sigemptyset(&mine);
  sigaddset(&mine, number);
  ::pthread_sigmask(SIG_UNBLOCK, &mine, nullptr);
  ::raise(number);
  ::_exit(128 + number);
}

void awaitSignal() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  unsigned char number = 0;
  while (::read(signalPipe[0], &number, 1) != 1) {
  }
  endBySignal(number);
}

}  // namespace

TemporaryPath::TemporaryPath(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(registry().mutex);
  registry().paths.insert(path_);
}

TemporaryPath::~TemporaryPath() {
  if (!path_.empty()) {
    const std::lock_guard lock(registry().mutex);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    registry().paths.erase(path_);
  }
}

bool TemporaryPath::renameTo(const std::string& target) {
  const std::lock_guard lock(registry().mutex);
  if (std::rename(path_.c_str(), target.c_str()) != 0) {
    return false;
  }
  ::unlink(path_.c_str());  // rename leaves it where both are the same file
  registry().paths.erase(path_);
  path_.clear();
  return true;
}

void removeTemporariesOnSignals() {
  if (::pipe2(signalPipe, O_CLOEXEC) != 0) {
    return;  // signals end the process as they always do
  }
  std::thread(awaitSignal).detach();
  struct sigaction action{};
  action.sa_handler = tellOfSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) {
    struct sigaction before{};
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
      ::sigaction(signal, &action, nullptr);
    }
  }
}

std::string temporaryNameOf(const std::string& path) { return fmt::format("{}{}{}", path, kMark, ::getpid()); }

void markInUse(const FileDescriptor& file) { ::flock(file.get(), LOCK_EX | LOCK_NB); }

bool isLeftover(const std::string& path) {
  const size_t mark = path.rfind(kMark);
  if (mark == std::string::npos) {
    return false;
  }
  pid_t pid = 0;
  const char* const end = path.data() + path.size();
  const auto [stop, error] = std::from_chars(path.data() + mark + kMark.size(), end, pid);
  if (error != std::errc() || stop != end || pid <= 0) {
    return false;
  }
  return !isInUse(path);
}

bool isInUse(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return !file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

void removeLeftovers(const std::string& path) {
  const fs::path whole(path);
  const std::string prefix = whole.filename().string() + std::string(kMark);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(whole.has_parent_path() ? whole.parent_path() : ".", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.find('.', prefix.size()) == std::string::npos &&
        isLeftover(entry.path().string())) {
      fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace gloo_bypass::trainer
