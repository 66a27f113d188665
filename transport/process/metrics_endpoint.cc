#include "transport/process/metrics_endpoint.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "transport/base/exhausted.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/signals_blocked.h"
#include "transport/process/metrics_text.h"

namespace gloo_bypass {
namespace {

constexpr const char* kLibrary = "libmicrohttpd.so.12";
constexpr std::size_t kConnectionMemory = 16 * 1024;
constexpr int kBacklog = 16;

// The functions used from libmicrohttpd.
struct HttpLibrary {
  decltype(&MHD_start_daemon) start = nullptr;
  decltype(&MHD_stop_daemon) stop = nullptr;
  decltype(&MHD_create_response_from_buffer) makeResponse = nullptr;
  decltype(&MHD_add_response_header) addHeader = nullptr;
  decltype(&MHD_queue_response) queue = nullptr;
  decltype(&MHD_destroy_response) destroyResponse = nullptr;
};

Error unavailable(std::string message) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, std::move(message)};
}

Result<HttpLibrary> loadLibrary() {
  void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return unavailable(
        fmt::format("the HTTP endpoint needs libmicrohttpd: {}; install libmicrohttpd12 (in newer Debian releases "
                    "libmicrohttpd12t64), or use file:/PATH",
                    ::dlerror()));
  }
  HttpLibrary library;
  const char* missing = nullptr;
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) missing = name;
  };
  find(library.start, "MHD_start_daemon");
  find(library.stop, "MHD_stop_daemon");
  find(library.makeResponse, "MHD_create_response_from_buffer");
  find(library.addHeader, "MHD_add_response_header");
  find(library.queue, "MHD_queue_response");
  find(library.destroyResponse, "MHD_destroy_response");
  if (missing != nullptr) return unavailable(fmt::format("{} has no {}: is it libmicrohttpd?", kLibrary, missing));
  return library;
}

// A socket's file of this process. Removes what is at `path` at its end, unless another process has put something there
// since. Empty: nothing to remove.
class SocketFile {
 public:
  SocketFile() = default;
  SocketFile(std::string path, const struct stat& made) : path_(std::move(path)), made_(made) {}
  SocketFile(SocketFile&& other) noexcept : path_(std::exchange(other.path_, {})), made_(other.made_) {}
  SocketFile& operator=(SocketFile&&) = delete;
  ~SocketFile() {
    struct stat now{};
    const bool isOurs = !path_.empty() && ::lstat(path_.c_str(), &now) == 0 && now.st_ino == made_.st_ino &&
                        now.st_dev == made_.st_dev && S_ISSOCK(now.st_mode);
    if (isOurs) ::unlink(path_.c_str());
  }

 private:
  std::string path_;
  struct stat made_{};
};

struct Listener {
  FileDescriptor socket;
  SocketFile file;
};

// Bind here: the library's errors say too little.
Result<Listener> listenAtPort(const std::string& address, std::uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  const int yes = 1;
  if (!socket || inet_pton(AF_INET, address.c_str(), &name.sin_addr) != 1 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int cause = errno;
    return unavailable(
        fmt::format("{}:{}: {}{}", address, port, std::strerror(cause),
                    cause == EADDRINUSE ? "; ranks of one machine need a port each: PORT+%r or auto" : ""));
  }
  return Listener{std::move(socket), {}};
}

// 0: it has none.
std::uint16_t portOf(int socket) {
  sockaddr_in name{};
  socklen_t length = sizeof(name);
  const bool isKnown = ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) == 0;
  return isKnown && name.sin_family == AF_INET ? ntohs(name.sin_port) : std::uint16_t{0};
}

std::string nameOf(const MetricsTarget& target) {
  return target.kind == MetricsTarget::Kind::kSocket ? target.path : fmt::format("{}:{}", target.address, target.port);
}

// Whether a process serves there already; else the error says why it cannot be told.
Status checkNobodyListens(const sockaddr_un& name) {
  struct stat status{};
  if (::lstat(name.sun_path, &status) != 0) return {};
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!S_ISSOCK(status.st_mode)) return unavailable(fmt::format("{} is there and is no socket", name.sun_path));
  if (!probe) return unavailable(std::strerror(errno));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 || errno == EAGAIN) {
    return unavailable(
        fmt::format("another process serves at {}; ranks of one machine need a socket each: %r or %p", name.sun_path));
  }
  return errno == ECONNREFUSED ? Status() : unavailable(fmt::format("{}: {}", name.sun_path, std::strerror(errno)));
}

// The path appears once the socket listens. It takes the place of what a killed process has left, and of nothing else.
Result<Listener> listenAtPath(const std::string& path) {
  constexpr std::size_t kTemporaryBytes = 15;  // ".PID.tmp"
  sockaddr_un name{}, temporary{};
  constexpr std::size_t kMostBytes = sizeof(name.sun_path) - 1 - kTemporaryBytes;
  if (path.size() > kMostBytes) return unavailable(fmt::format("a socket's path has at most {} bytes", kMostBytes));
  name.sun_family = temporary.sun_family = AF_UNIX;
  path.copy(name.sun_path, path.size());
  const std::string own = fmt::format("{}.{}.tmp", path, ::getpid());
  own.copy(temporary.sun_path, own.size());
  ::unlink(temporary.sun_path);  // left by a process that had our number
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  struct stat made{};
  // Before bind(): the file has these permissions from the start.
  if (!socket || ::fchmod(socket.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&temporary), sizeof(temporary)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0 || ::lstat(temporary.sun_path, &made) != 0) {
    const int cause = errno;
    ::unlink(temporary.sun_path);
    return unavailable(fmt::format("{}: {}", path, std::strerror(cause)));
  }
  // Unlike rename(), link() never takes the place of a socket that another process has made meanwhile.
  int failure = ::link(temporary.sun_path, name.sun_path) == 0 ? 0 : errno;
  Status free;
  if (failure == EEXIST && (free = checkNobodyListens(name)).ok()) {
    ::unlink(name.sun_path);
    failure = ::link(temporary.sun_path, name.sun_path) == 0 ? 0 : errno;
  }
  ::unlink(temporary.sun_path);
  if (!free.ok()) return free.error();
  if (failure != 0) return unavailable(fmt::format("{}: {}", path, std::strerror(failure)));
  return Listener{std::move(socket), SocketFile(path, made)};
}

void ignoreLog(void*, const char*, va_list) {}

class HttpEndpoint final : public MetricsEndpoint {
 public:
  HttpEndpoint(const HttpLibrary& library, FileDescriptor socket, SocketFile file, std::function<std::string()> page)
      : library_(library),
        page_(std::move(page)),
        port_(portOf(socket.get())),
        file_(std::move(file)),
        socket_(std::move(socket)),
        given_(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0)) {
    error_ = errno;
    if (given_ < 0) return;
    const SignalsBlocked blocked;
    daemon_ = library_.start(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, nullptr, nullptr, &answer, this,
        MHD_OPTION_EXTERNAL_LOGGER, &ignoreLog, static_cast<void*>(nullptr),  // must come first
        MHD_OPTION_LISTEN_SOCKET, given_, MHD_OPTION_CONNECTION_LIMIT, kMaxConnections, MHD_OPTION_CONNECTION_TIMEOUT,
        kIdleSeconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionMemory, MHD_OPTION_END);
  }
  ~HttpEndpoint() override {
    if (daemon_ != nullptr) library_.stop(daemon_);
  }

  bool running() const { return daemon_ != nullptr; }
  // Why it does not run.
  std::string trouble() const {
    if (given_ < 0) return std::strerror(error_);
    // errno holds what the library's clean-up left in it.
    return std::string("no thread or memory for it: ") + kRaiseThreadLimits;
  }
  std::uint16_t port() const override { return port_; }
  void leaveToParent() noexcept override {
    socket_.reset();
    ::close(given_);
  }

 private:
  static MHD_Result answer(void* self, MHD_Connection* connection, const char* url, const char* method, const char*,
                           const char*, std::size_t*, void**) noexcept {
    return static_cast<HttpEndpoint*>(self)->answerTo(connection, url, method);
  }

  // Answered at the first call, with only the headers here: a body is never read.
  MHD_Result answerTo(MHD_Connection* connection, std::string_view url, std::string_view method) noexcept {
    try {
      if (url != "/metrics") return reply(connection, MHD_HTTP_NOT_FOUND, "404: only /metrics is here\n");
      if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
        return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "405: GET only\n");
      }
      return reply(connection, MHD_HTTP_OK, page_(), kMetricsContentType);
    } catch (...) {
      return MHD_NO;  // closes the connection
    }
  }

  MHD_Result reply(MHD_Connection* connection, unsigned status, const std::string& text,
                   const char* type = "text/plain; charset=utf-8") {
    MHD_Response* response = library_.makeResponse(text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    library_.addHeader(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) library_.addHeader(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const MHD_Result queued = library_.queue(connection, status, response);
    library_.destroyResponse(response);
    return queued;
  }

  const HttpLibrary library_;
  const std::function<std::string()> page_;
  const std::uint16_t port_;
  const SocketFile file_;  // removed once nobody is served any more
  FileDescriptor socket_;
  const int given_;  // the same socket, the library's to close
  MHD_Daemon* daemon_ = nullptr;
  int error_ = 0;  // why given_ could not be made
};

}  // namespace

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::open(const MetricsTarget& target,
                                                               std::function<std::string()> page) {
  const auto library = loadLibrary();
  if (!library) return library.error();
  const bool isFile = target.kind == MetricsTarget::Kind::kSocket;
  auto listener = isFile ? listenAtPath(target.path) : listenAtPort(target.address, target.port);
  if (!listener) return listener.error();
  auto endpoint = std::make_unique<HttpEndpoint>(library.value(), std::move(listener.value().socket),
                                                 std::move(listener.value().file), std::move(page));
  if (!endpoint->running())
    return unavailable(fmt::format("{}: the HTTP server does not start: {}", nameOf(target), endpoint->trouble()));
  return std::unique_ptr<MetricsEndpoint>(std::move(endpoint));
}

}  // namespace gloo_bypass
