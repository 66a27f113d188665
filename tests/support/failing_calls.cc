// For LD_PRELOAD: C library calls that fail, or take long, as a variable of the environment says.
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

template <typename Function>
Function original(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// TEST_NO_HARD_LINKS: a file system without hard links.
extern "C" int link(const char* from, const char* to) noexcept {
  if (std::getenv("TEST_NO_HARD_LINKS") == nullptr)
    return original<int (*)(const char*, const char*)>("link")(from, to);
  errno = EPERM;
  return -1;
}

// TEST_PORT_TAKEN_ONCE, a file that does not exist yet: MASTER_PORT belongs to another program at the first attempt to
// bind it.
extern "C" int bind(int socket, const sockaddr* address, socklen_t length) noexcept {
  const char* const file = std::getenv("TEST_PORT_TAKEN_ONCE");
  const char* const port = std::getenv("MASTER_PORT");
  // The port is at the same place in both address families.
  if (file != nullptr && port != nullptr && *port != 0 &&
      (address->sa_family == AF_INET || address->sa_family == AF_INET6) &&
      ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port) == std::atoi(port)) {
    if (const int made = ::open(file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600); made >= 0) {
      ::close(made);
      errno = EADDRINUSE;
      return -1;
    }
  }
  return original<int (*)(int, const sockaddr*, socklen_t)>("bind")(socket, address, length);
}

// TEST_FSYNC_SECONDS: a disk that takes this long.
extern "C" int fsync(int file) {
  if (const char* const seconds = std::getenv("TEST_FSYNC_SECONDS")) ::sleep(static_cast<unsigned>(std::atoi(seconds)));
  return original<int (*)(int)>("fsync")(file);
}

// TEST_REMOVE_SECONDS: a disk that takes this long for that.
extern "C" int remove(const char* path) noexcept {
  if (const char* const seconds = std::getenv("TEST_REMOVE_SECONDS"))
    ::sleep(static_cast<unsigned>(std::atoi(seconds)));
  return original<int (*)(const char*)>("remove")(path);
}

// TEST_LISTEN_SECONDS: the listening process is preempted right after it for this long.
extern "C" int listen(int socket, int backlog) noexcept {
  const int result = original<int (*)(int, int)>("listen")(socket, backlog);
  if (const char* const seconds = std::getenv("TEST_LISTEN_SECONDS"))
    ::sleep(static_cast<unsigned>(std::atoi(seconds)));
  return result;
}
