#include "tools/all_reduce_perf/key_value_store.h"

#include <endian.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint8_t kSet = 1;
constexpr std::uint8_t kGet = 2;
constexpr std::uint32_t kMaxKeyBytes = 4096;
constexpr std::uint32_t kMaxValueBytes = 256u << 20;
constexpr std::uint32_t kMaxFirstValueBytes = 0;               // of a stranger: a client's first request is a get
constexpr std::size_t kMaxStoredBytes = std::size_t{4} << 30;  // of all keys and values
constexpr std::size_t kEntryBytes = 128;                       // what each takes beside its bytes
constexpr std::size_t kRequestBytes = 9;
constexpr std::size_t kReplyBytes = 5;
constexpr std::size_t kReadBytes = 64 * 1024;  // at a time
constexpr std::size_t kMaxConnections = 1024;  // at a time
constexpr milliseconds kAcceptRetry{100};      // where no descriptor is left to accept with
constexpr milliseconds kLongestSleep{60'000};
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

// `call` is send or recv: again until all of `data` has gone or come.
template <typename Call, typename Bytes>
bool transferAll(Call call, int fd, Bytes& data, int flags) {
  for (std::size_t done = 0; done < data.size();) {
    const ssize_t moved = call(fd, data.data() + done, data.size() - done, flags);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}
template <typename Bytes>
bool writeAll(int fd, const Bytes& data) {
  return transferAll(::send, fd, data, MSG_NOSIGNAL);
}
template <typename Bytes>
bool readAll(int fd, Bytes& data) {
  return transferAll(::recv, fd, data, 0);
}

void setTimeout(int fd, int option, milliseconds timeout) {
  const timeval value{timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value));
}

void setNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// A connected socket; none, with `problem` saying why.
FileDescriptor tryConnect(const std::string& host, std::uint16_t port, std::string* problem) {
  addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0) {
    *problem = gai_strerror(code);
    return FileDescriptor();
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
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

// A stranger until it has asked something, then a client. A request is read, then answered, then the next one is read.
class KeyValueServer::Connection {
 public:
  Connection(FileDescriptor socket, Clock::time_point asksUntil) : socket_(std::move(socket)), asksUntil_(asksUntil) {}

  int fd() const { return socket_.get(); }
  bool isClient() const { return isClient_; }
  bool isWaiting() const { return waitsUntil_.has_value(); }  // for what nobody has set yet
  // What to poll for: the rest of a request, room for the rest of a reply, or that the other end hangs up.
  short events() const { return isWaiting() ? POLLRDHUP : left_ > 0 ? POLLOUT : POLLIN; }
  // When something is due unasked.
  std::optional<Clock::time_point> deadline() const { return isClient_ ? waitsUntil_ : asksUntil_; }

  bool isOpen() const { return isOpen_; }  // else it is to be closed

  // Reads more of a request, and asks `answer` once it is whole; or sends more of a reply.
  void advance(short ready, Clock::time_point now, const std::function<void(Connection&)>& answer);

  std::uint8_t operation() const { return static_cast<std::uint8_t>(request_[0]); }
  milliseconds timeout() const { return milliseconds(getU32(&request_[5])); }
  std::string key() const { return std::string(&request_[kRequestBytes], keyBytes_); }
  std::vector<char> takeValue();
  // One of them answers a request.
  void waitUntil(Clock::time_point time) { waitsUntil_ = time; }
  void reply(bool found, Value value = nullptr);

 private:
  // False: the other end has hung up, or is none of ours.
  bool receive();
  bool readLengths();
  bool send();

  const FileDescriptor socket_;
  const Clock::time_point asksUntil_;
  bool isOpen_ = true, isClient_ = false;
  std::vector<char> request_;  // what has arrived of it
  std::size_t wanted_ = kRequestBytes;
  std::uint32_t keyBytes_ = 0;
  std::optional<Clock::time_point> waitsUntil_;
  std::array<char, kReplyBytes> head_{};
  Value value_;
  std::size_t left_ = 0;  // of the reply
};

void KeyValueServer::Connection::advance(short ready, Clock::time_point now,
                                         const std::function<void(Connection&)>& answer) {
  if (isWaiting()) {
    isOpen_ = ready == 0;
    if (now >= *waitsUntil_) reply(false);
  } else if (left_ == 0 && ready != 0) {
    isOpen_ = receive();
    if (isOpen_ && request_.size() == wanted_) {
      isClient_ = true;
      answer(*this);
    }
  }
  if (left_ > 0) isOpen_ = isOpen_ && send();
  if (!isClient_) isOpen_ = isOpen_ && now < asksUntil_;
}

bool KeyValueServer::Connection::receive() {
  std::array<char, kReadBytes> arrived;
  const ssize_t got = ::recv(fd(), arrived.data(), std::min(arrived.size(), wanted_ - request_.size()), MSG_DONTWAIT);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  request_.insert(request_.end(), arrived.data(), arrived.data() + got);
  return request_.size() != kRequestBytes || readLengths();
}

bool KeyValueServer::Connection::readLengths() {
  keyBytes_ = getU32(&request_[1]);
  const std::uint32_t valueBytes = operation() == kSet ? getU32(&request_[5]) : 0;
  wanted_ += std::size_t{keyBytes_} + valueBytes;
  return (operation() == kSet || operation() == kGet) && keyBytes_ <= kMaxKeyBytes &&
         valueBytes <= (isClient_ ? kMaxValueBytes : kMaxFirstValueBytes);
}

std::vector<char> KeyValueServer::Connection::takeValue() {
  std::vector<char> value = std::move(request_);
  value.erase(value.begin(), value.begin() + static_cast<std::ptrdiff_t>(kRequestBytes + keyBytes_));
  return value;
}

void KeyValueServer::Connection::reply(bool found, Value value) {
  waitsUntil_.reset();
  request_ = {};
  wanted_ = kRequestBytes;
  value_ = std::move(value);
  const std::size_t valueBytes = value_ ? value_->size() : 0;
  head_[0] = found ? 1 : 0;
  putU32(&head_[1], static_cast<std::uint32_t>(valueBytes));
  left_ = head_.size() + valueBytes;
}

bool KeyValueServer::Connection::send() {
  const std::string_view value = value_ ? std::string_view(value_->data(), value_->size()) : std::string_view();
  while (left_ > 0) {
    const std::string_view rest =
        left_ > value.size() ? std::string_view(head_.data(), head_.size()).substr(head_.size() + value.size() - left_)
                             : value.substr(value.size() - left_);
    const ssize_t sent = ::send(fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    left_ -= static_cast<std::size_t>(sent);
  }
  value_.reset();
  return true;
}

KeyValueServer::KeyValueServer(Reach reach, std::uint16_t port, milliseconds asksWithin)
    : asksWithin_(asksWithin), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw ProgramError(fmt::format("cannot make an event: {}", std::strerror(errno)));
  listener_ = socketOnPort(port, /*reuse=*/true, reach);
  if (!listener_ || ::listen(listener_.get(), SOMAXCONN) != 0 || ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK) != 0)
    throw ProgramError(
        fmt::format("rank 0 cannot listen on MASTER_PORT={}: {}; choose another port, or use --store-dir", port,
                    std::strerror(errno)));
  const auto bound = portOf(listener_);
  if (!bound) throw ProgramError(fmt::format("cannot read the port of a listening socket: {}", std::strerror(errno)));
  port_ = *bound;
}

KeyValueServer::~KeyValueServer() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void KeyValueServer::start() {
  thread_ = std::thread([this] { serve(); });
}

std::optional<std::vector<char>> KeyValueServer::value(const std::string& key) const {
  const Value found = find(key);
  return found ? std::optional(*found) : std::nullopt;
}

KeyValueServer::Value KeyValueServer::find(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = data_.find(key);
  return found == data_.end() ? nullptr : found->second;
}

bool KeyValueServer::keep(const std::string& key, std::vector<char> value) {
  const MutexLock lock(mutex_);
  const auto entry = data_.find(key);
  const std::size_t before = entry == data_.end() ? 0 : key.size() + entry->second->size() + kEntryBytes;
  const std::size_t after = key.size() + value.size() + kEntryBytes;
  if (storedBytes_ - before > kMaxStoredBytes - after) return false;
  storedBytes_ = storedBytes_ - before + after;
  data_[key] = std::make_shared<const std::vector<char>>(std::move(value));
  return true;
}

bool KeyValueServer::waitForClients(milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  const MutexLock lock(mutex_);
  while (clients_ > 0 && changed_.waitUntil(mutex_, end)) {
  }
  return clients_ == 0;
}

void KeyValueServer::answer(Connection& connection) {
  const std::string key = connection.key();
  if (connection.operation() == kSet) {
    const bool isKept = keep(key, connection.takeValue());
    connection.reply(isKept);
    for (const auto& other : connections_)
      if (isKept && other->isWaiting() && other->key() == key) other->reply(true, find(key));
  } else if (Value found = find(key)) {
    connection.reply(true, std::move(found));
  } else {
    connection.waitUntil(Clock::now() + connection.timeout());
  }
}

// Of strangers the one that has had most time to ask.
bool KeyValueServer::makeRoom() {
  const auto stranger =
      std::find_if(connections_.begin(), connections_.end(), [](const auto& one) { return !one->isClient(); });
  if (stranger == connections_.end()) return false;
  connections_.erase(stranger);
  return true;
}

// False: no descriptor is left.
bool KeyValueServer::acceptAll() {
  for (;;) {
    FileDescriptor accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accepted.get() < 0) {
      const bool isOut = errno == EMFILE || errno == ENFILE;
      if (isOut && makeRoom()) continue;
      return !isOut;
    }
    if (connections_.size() >= kMaxConnections && !makeRoom()) continue;
    setNoDelay(accepted.get());
    connections_.push_back(std::make_unique<Connection>(std::move(accepted), Clock::now() + asksWithin_));
  }
}

void KeyValueServer::serve() {
  auto acceptFrom = Clock::now();
  for (;;) {
    const bool accepts = Clock::now() >= acceptFrom;
    std::vector<pollfd> polled{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                               {.fd = accepts ? listener_.get() : -1, .events = POLLIN, .revents = 0}};
    auto next = accepts ? Clock::now() + kLongestSleep : acceptFrom;
    for (const auto& connection : connections_) {
      polled.push_back({.fd = connection->fd(), .events = connection->events(), .revents = 0});
      next = std::min(next, connection->deadline().value_or(next));
    }
    const auto sleep = std::max(std::chrono::ceil<milliseconds>(next - Clock::now()), milliseconds(0));
    (void)::poll(polled.data(), polled.size(), static_cast<int>(sleep.count()));
    if (polled[0].revents != 0) return;

    const auto now = Clock::now();
    for (std::size_t i = 0; i < connections_.size(); ++i)
      connections_[i]->advance(polled[i + 2].revents, now, [this](Connection& asked) { answer(asked); });
    std::erase_if(connections_, [](const auto& connection) { return !connection->isOpen(); });
    if (polled[1].revents != 0 && !acceptAll()) acceptFrom = now + kAcceptRetry;
    const auto clients =
        std::count_if(connections_.begin(), connections_.end(), [](const auto& one) { return one->isClient(); });
    const MutexLock lock(mutex_);
    clients_ = static_cast<std::size_t>(clients);
    changed_.notifyAll();
  }
}

KeyValueClient::KeyValueClient(const std::string& host, std::uint16_t port, milliseconds timeout)
    : timeout_(timeout), peer_(fmt::format("{}:{}", host, port)) {
  const auto deadline = Clock::now() + timeout;
  std::string problem;
  for (;;) {
    socket_ = tryConnect(host, port, &problem);
    if (socket_.get() >= 0 && isAnswered()) return;
    if (socket_.get() >= 0) problem = "who listens there is no store";
    if (Clock::now() + kConnectRetry > deadline)
      throw ProgramError(fmt::format("cannot reach rank 0 at {} within {} ms: {}; check MASTER_ADDR and MASTER_PORT",
                                     peer_, timeout.count(), problem));
    std::this_thread::sleep_for(kConnectRetry);
  }
}

// The server keeps a connection that has asked something.
bool KeyValueClient::isAnswered() {
  try {
    request(kGet, "", {}, milliseconds(0));
    return true;
  } catch (const ::gloo::IoException&) {
    return false;
  }
}

void KeyValueClient::set(const std::string& key, const std::vector<char>& data) {
  if (!request(kSet, key, data, timeout_))
    throw ::gloo::IoException(fmt::format("the store at {} is full: no room for {} bytes", peer_, data.size()));
}

std::vector<char> KeyValueClient::get(const std::string& key) { return fetch(key, timeout_, timeout_); }

std::vector<char> KeyValueClient::fetch(const std::string& key, milliseconds left, milliseconds timeout) {
  auto value = request(kGet, key, {}, std::max(left, milliseconds(0)));
  if (!value)
    throw ::gloo::IoException(fmt::format("no rank has set '{}' at {} within {} ms", key, peer_, timeout.count()));
  return std::move(*value);
}

void KeyValueClient::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = Clock::now() + timeout;
  for (const std::string& key : keys)
    (void)fetch(key, std::chrono::duration_cast<milliseconds>(deadline - Clock::now()), timeout);
}

std::optional<std::vector<char>> KeyValueClient::request(std::uint8_t operation, const std::string& key,
                                                         const std::vector<char>& value, milliseconds timeout) {
  if (key.size() > kMaxKeyBytes || value.size() > kMaxValueBytes)
    throw ::gloo::IoException(
        fmt::format("key '{:.40}' or its {} bytes are too long for {}", key, value.size(), peer_));
  const MutexLock lock(mutex_);
  std::array<char, kRequestBytes> header{};
  header[0] = static_cast<char>(operation);
  putU32(&header[1], static_cast<std::uint32_t>(key.size()));
  putU32(&header[5], static_cast<std::uint32_t>(operation == kSet ? value.size() : timeout.count()));
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) setTimeout(socket_.get(), option, timeout + kReplySlack);
  std::array<char, kReplyBytes> reply{};
  const int fd = socket_.get();
  const bool done = writeAll(fd, header) && writeAll(fd, key) && writeAll(fd, value) && readAll(fd, reply);
  const std::uint32_t length = done ? getU32(&reply[1]) : 0;
  std::vector<char> answer(std::min(length, kMaxValueBytes));
  if (!done || length > kMaxValueBytes || !readAll(fd, answer))
    throw ::gloo::IoException(fmt::format("the store at {} does not answer; has rank 0 ended?", peer_));
  if (reply[0] == 0) return std::nullopt;
  return answer;
}

}  // namespace gloo_bypass
