#include "transport/base/whole_file.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "transport/base/broken_pipe_held.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass {
namespace {

Status failedAs(std::string why) { return {ErrorScope::kDevice, ErrorCode::kUnavailable, std::move(why)}; }
Status failedAs(int error) { return failedAs(std::strerror(error)); }

Status writeAll(int file, std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + kReaderBound;
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno == EAGAIN) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
      if (left.count() <= 0 || ::poll(&room, 1, static_cast<int>(left.count())) == 0) {
        return failedAs("whoever reads it does not take the text");
      }
    } else if (errno != EINTR) {
      return failedAs(errno);
    }
  }
  return {};
}

// A terminal, /dev/null or a FIFO is not replaced.
Status writeInPlace(const std::string& path, const std::string& text) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return failedAs(errno);
  if (S_ISREG(status.st_mode)) return failedAs("it is a symbolic link to a file: name the file itself");
  if (!S_ISCHR(status.st_mode) && !S_ISFIFO(status.st_mode)) {
    return failedAs("it is neither a file nor a character device nor a FIFO");
  }
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return errno == ENXIO ? failedAs("nobody reads from it") : failedAs(errno);
  const BrokenPipeHeld held;
  return writeAll(file.get(), text);
}

}  // namespace

Status writeWholeFile(const std::string& path, const std::string& text, Durability durability) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return writeInPlace(path, text);
  const std::string temporary = path + "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(temporary.c_str());  // left by a process that had our number
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file < 0) return failedAs(errno);
  Status written = writeAll(file, text);
  if (written && durability == Durability::kDurable && ::fsync(file) != 0) written = failedAs(errno);
  if (::close(file) != 0 && written) written = failedAs(errno);
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0) written = failedAs(errno);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

std::string withProcessId(std::string path) {
  if (const std::size_t at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  return path;
}

}  // namespace gloo_bypass
