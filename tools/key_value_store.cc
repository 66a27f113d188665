#include "tools/key_value_store.h"

#include <endian.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "programs/error.h"

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint8_t kSet = 1;
constexpr std::uint8_t kGet = 2;
constexpr std::uint32_t kMaxKeyBytes = 4096;
constexpr std::uint32_t kMaxValueBytes = 256u << 20;
constexpr std::size_t kRequestBytes = 9;
constexpr std::size_t kReplyBytes = 5;
constexpr milliseconds kStopCheck{100};  // how often an idle server thread looks whether it should end
constexpr milliseconds kConnectRetry{50};
constexpr milliseconds kReplySlack{5000};  // the server answers a wait at its timeout; the reply may be this late

void putU32(char* at, std::uint32_t value) {
  const std::uint32_t wire = htobe32(value);
  std::memcpy(at, &wire, sizeof(wire));
}
std::uint32_t getU32(const char* at) {
  std::uint32_t wire = 0;
  std::memcpy(&wire, at, sizeof(wire));
  return be32toh(wire);
}

bool writeAll(int fd, const char* data, std::size_t length) {
  while (length > 0) {
    const ssize_t sent = ::send(fd, data, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    length -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool readAll(int fd, char* data, std::size_t length) {
  while (length > 0) {
    const ssize_t got = ::recv(fd, data, length, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    length -= static_cast<std::size_t>(got);
  }
  return true;
}

void setTimeout(int fd, int option, milliseconds timeout) {
  const timeval value{timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value));
}

void setNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// A listening socket, or none with `error` set to the errno.
FileDescriptor tryListen(int family, KeyValueServer::Reach reach, std::uint16_t port, int* error) {
  FileDescriptor fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) {
    *error = errno;
    return fd;
  }
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    *address = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    length = sizeof(*address);
  } else {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    const bool local = reach == KeyValueServer::Reach::kThisMachine;
    *address = {.sin_family = AF_INET, .sin_port = htons(port),
                .sin_addr = {.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY)}};
    length = sizeof(*address);
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    *error = errno;
    fd.reset();
  }
  return fd;
}

struct AddressListDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// A connected socket; none, with `problem` saying why.
FileDescriptor tryConnect(const std::string& host, std::uint16_t port, std::string* problem) {
  addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0) {
    *problem = gai_strerror(code);
    return FileDescriptor();
  }
  const std::unique_ptr<addrinfo, AddressListDeleter> list(found);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    FileDescriptor fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) continue;
    setTimeout(fd.get(), SO_SNDTIMEO, kReplySlack);  // bounds connect, too
    if (::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0) {
      setNoDelay(fd.get());
      return fd;
    }
    *problem = std::strerror(errno);
  }
  return FileDescriptor();
}

}  // namespace

KeyValueServer::KeyValueServer(Reach reach, std::uint16_t port) {
  int error = 0;
  if (reach == Reach::kNetwork) listener_ = tryListen(AF_INET6, reach, port, &error);
  if (listener_.get() < 0 && error != EADDRINUSE) listener_ = tryListen(AF_INET, reach, port, &error);
  if (listener_.get() < 0)
    throw ProgramError(
        fmt::format("rank 0 cannot listen on MASTER_PORT={}: {}; choose another port, or use --store-dir", port,
                    std::strerror(error)));
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw ProgramError(fmt::format("cannot read the port of a listening socket: {}", std::strerror(errno)));
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                              : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

KeyValueServer::~KeyValueServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const FileDescriptor& connection : connections_) ::shutdown(connection.get(), SHUT_RDWR);
  }
  changed_.notify_all();
  if (acceptor_.joinable()) acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
}

void KeyValueServer::start() { acceptor_ = std::thread([this] { acceptConnections(); }); }

std::optional<std::vector<char>> KeyValueServer::value(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = data_.find(key);
  if (found == data_.end()) return std::nullopt;
  return found->second;
}

void KeyValueServer::acceptConnections() {
  for (;;) {
    pollfd poll{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(kStopCheck.count()));
    FileDescriptor accepted(ready > 0 ? ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1);
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (accepted.get() < 0 || connections_.size() >= kMaxConnections) continue;
    setNoDelay(accepted.get());
    ++serving_;
    threads_.emplace_back([this, fd = accepted.get()] { serve(fd); });
    connections_.push_back(std::move(accepted));
  }
}

void KeyValueServer::serve(int fd) {
  while (answer(fd)) {
  }
  ::shutdown(fd, SHUT_RDWR);
  const std::lock_guard lock(mutex_);
  --serving_;
  changed_.notify_all();
}

bool KeyValueServer::waitForClients(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return serving_ == 0; });
}

bool KeyValueServer::answer(int fd) {
  std::array<char, kRequestBytes> header{};
  if (!readAll(fd, header.data(), header.size())) return false;
  const std::uint32_t keyBytes = getU32(&header[1]);
  const std::uint32_t argument = getU32(&header[5]);
  if (keyBytes > kMaxKeyBytes) return false;
  std::string key(keyBytes, '\0');
  if (!readAll(fd, key.data(), key.size())) return false;
  std::optional<std::vector<char>> found;
  if (header[0] == kSet) {
    if (argument > kMaxValueBytes) return false;
    std::vector<char> value(argument);
    if (!readAll(fd, value.data(), value.size())) return false;
    const std::lock_guard lock(mutex_);
    data_[key] = std::move(value);
    changed_.notify_all();
    found.emplace();
  } else if (header[0] == kGet) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(argument), [&] { return stopping_ || data_.contains(key); });
    if (const auto entry = data_.find(key); entry != data_.end()) found = entry->second;
  } else {
    return false;
  }
  std::array<char, kReplyBytes> reply{};
  reply[0] = found.has_value() ? 1 : 0;
  putU32(&reply[1], found ? static_cast<std::uint32_t>(found->size()) : 0);
  return writeAll(fd, reply.data(), reply.size()) && (!found || writeAll(fd, found->data(), found->size()));
}

KeyValueClient::KeyValueClient(const std::string& host, std::uint16_t port, milliseconds timeout)
    : timeout_(timeout), peer_(fmt::format("{}:{}", host, port)) {
  const auto deadline = Clock::now() + timeout;
  std::string problem;
  for (;;) {
    socket_ = tryConnect(host, port, &problem);
    if (socket_.get() >= 0) return;
    if (Clock::now() + kConnectRetry > deadline)
      throw ProgramError(fmt::format("cannot reach rank 0 at {} within {} ms: {}; check MASTER_ADDR and MASTER_PORT",
                                     peer_, timeout.count(), problem));
    std::this_thread::sleep_for(kConnectRetry);
  }
}

void KeyValueClient::set(const std::string& key, const std::vector<char>& data) { request(kSet, key, data, timeout_); }

std::vector<char> KeyValueClient::get(const std::string& key) {
  auto value = request(kGet, key, {}, timeout_);
  if (!value)
    throw ::gloo::IoException(fmt::format("no rank has set '{}' at {} within {} ms", key, peer_, timeout_.count()));
  return std::move(*value);
}

void KeyValueClient::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = Clock::now() + timeout;
  for (const std::string& key : keys) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (!request(kGet, key, {}, std::max(left, milliseconds(0))))
      throw ::gloo::IoException(fmt::format("no rank has set '{}' at {} within {} ms", key, peer_, timeout.count()));
  }
}

std::optional<std::vector<char>> KeyValueClient::request(std::uint8_t operation, const std::string& key,
                                                         const std::vector<char>& value, milliseconds timeout) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes)
    throw ::gloo::IoException(fmt::format("key '{:.40}' or its {} bytes are too long for {}", key, value.size(), peer_));
  const std::lock_guard lock(mutex_);
  std::array<char, kRequestBytes> header{};
  header[0] = static_cast<char>(operation);
  putU32(&header[1], static_cast<std::uint32_t>(key.size()));
  putU32(&header[5], static_cast<std::uint32_t>(operation == kSet ? value.size() : timeout.count()));
  setTimeout(socket_.get(), SO_RCVTIMEO, timeout + kReplySlack);
  setTimeout(socket_.get(), SO_SNDTIMEO, timeout + kReplySlack);
  std::array<char, kReplyBytes> reply{};
  const bool done = writeAll(socket_.get(), header.data(), header.size()) &&
                    writeAll(socket_.get(), key.data(), key.size()) &&
                    writeAll(socket_.get(), value.data(), value.size()) &&
                    readAll(socket_.get(), reply.data(), reply.size());
  const std::uint32_t length = done ? getU32(&reply[1]) : 0;
  std::vector<char> answer(std::min(length, kMaxValueBytes));
  if (!done || length > kMaxValueBytes || !readAll(socket_.get(), answer.data(), answer.size()))
    throw ::gloo::IoException(fmt::format("the store at {} does not answer; has rank 0 ended?", peer_));
  if (reply[0] == 0) return std::nullopt;
  return answer;
}

}  // namespace gloo_bypass
