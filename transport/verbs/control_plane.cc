#include "transport/verbs/control_plane.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/exhausted.h"
#include "transport/base/fields.h"

namespace gloo_bypass::verbs {
namespace {

constexpr std::array<char, 4> kPlainMagic = {'G', 'B', 'C', '1'}, kKeyedMagic = {'G', 'B', 'C', '2'};
constexpr char kReady = 'R', kAbort = 'A';
constexpr std::uint64_t kListenerKey = 0;
// A connection without a hello is not a peer.
constexpr auto kHelloTimeout = std::chrono::seconds(10);
constexpr std::size_t kMaxStrangers = 256, kMostDeparted = 256;
// Connections accepted in one poll: a process that connects without pause must not keep data from moving. The rest
// waits for the next poll.
constexpr int kAcceptsAtOnce = 64;
// Between two attempts to dial; doubles each time.
constexpr auto kFirstPause = std::chrono::milliseconds(20), kLongestPause = std::chrono::milliseconds(500);
// Detects a host that went down silently. The kernel sends 127 probes at most.
constexpr int kKeepAliveIdleSeconds = 5, kKeepAliveIntervalSeconds = 2, kMostProbes = 120;

constexpr std::array<std::uint8_t, 12> kMappedIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
bool isMappedIpv4(const GidBytes& ip) { return std::equal(kMappedIpv4.begin(), kMappedIpv4.end(), ip.begin()); }

void setOption(int fd, int level, int name, int value) { (void)setsockopt(fd, level, name, &value, sizeof value); }

void watchForDeadHosts(int fd, std::chrono::seconds patience) {
  const int span = static_cast<int>(patience.count()) - kKeepAliveIdleSeconds;
  const int interval = std::max(kKeepAliveIntervalSeconds, (span + kMostProbes - 1) / kMostProbes);
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, span / interval);
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

Status failed(const char* what) {
  const int error = errno;
  return Status(ErrorScope::kSession, exhausted(error).empty() ? ErrorCode::kUnavailable : ErrorCode::kExhausted,
                fmt::format("the control connection: {}: {}", what, reasonOf(error)));
}

}  // namespace

network::Endpoint endpointOf(const GidBytes& ip, std::uint16_t port) {
  network::Endpoint endpoint;
  const bool v4 = isMappedIpv4(ip);
  endpoint.any.sa_family = v4 ? AF_INET : AF_INET6;
  endpoint.setPort(port);
  std::ranges::copy(std::as_bytes(std::span(ip)).subspan(v4 ? 12 : 0), endpoint.ip().begin());
  return endpoint;
}

GidBytes bytesOf(network::Endpoint address) {
  GidBytes bytes{};
  if (!address.isV6()) std::ranges::copy(kMappedIpv4, bytes.begin());
  const std::span<const std::byte> ip = address.ip();
  std::ranges::copy(ip, std::as_writable_bytes(std::span(bytes)).last(ip.size()).begin());
  return bytes;
}

ControlKeys controlKeysOf(const security::KeyAgreement& agreement) {
  const auto tokensOf = [&agreement](std::uint64_t id) {
    return ControlTokens{.hello = agreement.token(id, "RDMA hello"),
                         .ready = agreement.token(id, "RDMA ready"),
                         .abort = agreement.token(id, "RDMA abort")};
  };
  return {.own = tokensOf(agreement.ownId()), .peer = tokensOf(agreement.peerId())};
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::make(const GidBytes& ip, bool keyed,
                                                         std::chrono::seconds patience) {
  std::unique_ptr<ControlPlane> plane(new ControlPlane(keyed, std::max(patience, kLeastPatience)));
  if (Status status = plane->listen(ip); !status) return status;
  return plane;
}

ControlPlane::~ControlPlane() = default;

Status ControlPlane::listen(const GidBytes& ip) {
  ip_ = ip;
  network::Endpoint address = endpointOf(ip, 0);
  socklen_t length = sizeof address;
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return failed("epoll_create1");
  listener_ = FileDescriptor(socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))
                  .leftByForkedChildren();
  if (!listener_) return failed("socket");
  spare_.reset(eventfd(0, EFD_CLOEXEC));
  if (!spare_) return failed("eventfd2");
  if (bind(listener_.get(), &address.any, length) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0) {
    const std::string what =
        fmt::format("cannot listen on {} (is it still an address of this machine?)", network::ipText(address));
    return failed(what.c_str());
  }
  if (getsockname(listener_.get(), &address.any, &length) != 0) return failed("getsockname");
  port_ = address.port();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerKey;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) return failed("epoll_ctl");
  // Find a sandbox's refusal now, not later as a peer that does not answer. No one knows the port yet.
  if (epoll_wait(epoll_.get(), &event, 1, 0) < 0) return failed("epoll_wait");
  if (!FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)) && errno != EAGAIN)
    return failed("accept4");
  return {};
}

std::string ControlPlane::wayOf(std::uint64_t session) const {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return "by TCP";
  const bool dials = it->second.port != 0;
  return fmt::format("by TCP {}{}", dials ? "to " : "from the peer to ",
                     network::toString(dials ? endpointOf(it->second.ip, it->second.port) : endpointOf(ip_, port_)));
}

void ControlPlane::open(std::uint64_t session, ControlObserver* observer) { sessions_[session].observer = observer; }

Status ControlPlane::connect(std::uint64_t sessionId, std::uint64_t peer, const GidBytes& ip, std::uint16_t port,
                             const std::optional<ControlKeys>& keys) {
  GLOO_BYPASS_CHECK(keys.has_value() == keyed_);
  Session& session = sessions_.at(sessionId);
  session.peer = peer;
  session.keys = keys;
  if (session.socket != 0) {
    // The peer dialled before we knew which peer to expect.
    Socket& socket = sockets_.at(session.socket);
    if (socket.helloFrom == peer && proven(keys, socket) && say(keys, socket, kReady)) {
      listenTo(session.socket, socket, EPOLLIN | EPOLLRDHUP);
      return {};
    }
    refuse(std::exchange(session.socket, 0));
  }
  if (sessionId > peer) return {};
  session.ip = ip;
  session.port = port;
  session.pause = Duration(kFirstPause);
  return dial(sessionId, session);
}

Status ControlPlane::dial(std::uint64_t id, Session& session) {
  const network::Endpoint address = endpointOf(session.ip, session.port);
  Socket socket;
  socket.fd = FileDescriptor(::socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))
                  .leftByForkedChildren();
  if (!socket.fd) return failed("no socket");
  watchForDeadHosts(socket.fd.get(), patience_);
  if (::connect(socket.fd.get(), &address.any, sizeof address) != 0 && errno != EINPROGRESS) {
    return failed("cannot reach the peer");
  }
  socket.session = id;
  socket.helloFrom = session.peer;
  socket.dialling = true;
  session.socket = add(std::move(socket), EPOLLOUT);
  return {};
}

void ControlPlane::dialLater(Session& session) {
  session.dialAt = now_ + session.pause;
  session.pause = std::min(session.pause * 2, Duration(kLongestPause));
  nextDial_ = std::min(nextDial_, session.dialAt);
}

void ControlPlane::dialDue(TimePoint now) {
  nextDial_ = kNever;
  std::vector<std::pair<std::uint64_t, std::string>> unreachable;  // collected first: an observer may close sessions
  for (auto& [id, session] : sessions_) {
    if (session.dialAt <= now) {
      session.dialAt = kNever;
      if (const Status status = dial(id, session); !status) unreachable.emplace_back(id, status.error().message);
    } else {
      nextDial_ = std::min(nextDial_, session.dialAt);
    }
  }
  for (const auto& [id, cause] : unreachable) lost(id, false, cause);
}

void ControlPlane::close(std::uint64_t sessionId, bool abort) {
  const auto it = sessions_.find(sessionId);
  if (it == sessions_.end()) return;
  const std::uint64_t key = it->second.socket;
  if (key != 0 && abort && it->second.keys.has_value() == keyed_) (void)say(it->second.keys, sockets_.at(key), kAbort);
  if (key == 0 && it->second.keys && !it->second.peerReady && it->second.port == 0) {
    if (departed_.size() == kMostDeparted) departed_.pop_front();
    departed_.emplace_back(sessionId, *it->second.keys);
  }
  sessions_.erase(it);
  if (key != 0) sockets_.erase(key);
}

std::uint64_t ControlPlane::add(Socket socket, std::uint32_t events) {
  const std::uint64_t key = nextKey_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  // On failure no one reads the socket, and the channel's own time-outs end it.
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.fd.get(), &event);
  sockets_.emplace(key, std::move(socket));
  return key;
}

bool ControlPlane::poll(TimePoint now) {
  now_ = now;
  if (!strangers_.empty()) dropStrangers(now);
  if (now >= nextDial_) dialDue(now);
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kListenerKey) {
      acceptAll(now);
    } else {
      handle(event.data.u64);
    }
  }
  return count > 0;
}

// No descriptor is left: a connection that waits for ever would keep poll() busy for ever. False: none waits (accept
// reports a lack of descriptors in that case too).
bool ControlPlane::turnAwayOne() {
  spare_.reset();
  const bool refused = static_cast<bool>(FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  spare_.reset(eventfd(0, EFD_CLOEXEC));
  if (refused) ++refused_;
  return refused;
}

void ControlPlane::acceptAll(TimePoint now) {
  for (int accepted = 0; accepted < kAcceptsAtOnce; ++accepted) {
    FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd && (errno == EMFILE || errno == ENFILE) && spare_) {
      if (turnAwayOne()) continue;
      return;
    }
    if (!fd) return;
    if (strangers_.size() >= kMaxStrangers) {
      const std::uint64_t oldest = *strangers_.begin();
      readHello(oldest, sockets_.at(oldest));  // it may have arrived since
      if (strangers_.contains(oldest)) refuse(oldest);
    }
    watchForDeadHosts(fd.get(), patience_);
    Socket socket;
    socket.fd = std::move(fd).leftByForkedChildren();
    socket.since = now;
    strangers_.insert(add(std::move(socket), EPOLLIN | EPOLLRDHUP));
  }
}

void ControlPlane::handle(std::uint64_t key) {
  const auto it = sockets_.find(key);
  if (it == sockets_.end()) return;  // an earlier event of this round led to its closing
  Socket& socket = it->second;
  if (socket.session == 0) {
    readHello(key, socket);
  } else if (socket.dialling) {
    onDialled(key, socket);
  } else {
    readMessages(socket);
  }
}

void ControlPlane::onDialled(std::uint64_t key, Socket& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  (void)getsockopt(socket.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    lost(socket.session, false,
         fmt::format("the control connection cannot be made {}: {}", wayOf(socket.session), std::strerror(error)));
    return;
  }
  socket.dialling = false;
  const Session& session = sessions_.at(socket.session);
  std::array<std::byte, kPlainHelloBytes + security::kTokenBytes> hello{};
  FieldWriter writer(hello.data());
  writer(keyed_ ? kKeyedMagic : kPlainMagic, std::uint32_t{0}, socket.helloFrom, socket.session);
  if (keyed_) writer(session.keys->own.hello);
  const bool sent =
      send(socket.fd.get(), hello.data(), helloBytes(), MSG_NOSIGNAL | MSG_MORE) == static_cast<ssize_t>(helloBytes());
  if (!sent || !say(session.keys, socket, kReady)) {
    hungUp(socket.session, fmt::format("the control connection broke: {}", std::strerror(errno)));
    return;
  }
  listenTo(key, socket, EPOLLIN | EPOLLRDHUP);
}

void ControlPlane::listenTo(std::uint64_t key, const Socket& socket, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket.fd.get(), &event);
}

void ControlPlane::readHello(std::uint64_t key, Socket& socket) {
  const ssize_t got =
      recv(socket.fd.get(), socket.hello.data() + socket.helloBytes, helloBytes() - socket.helloBytes, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    refuse(key);
    return;
  }
  socket.helloBytes += static_cast<std::size_t>(got);
  if (socket.helloBytes < helloBytes()) return;
  auto magic = kPlainMagic;
  std::uint64_t target = 0, from = 0;
  FieldReader reader(socket.hello.data());
  reader(magic);
  reader.skip(4);
  reader(target, from);
  const auto it = sessions_.find(target);
  const bool wellFormed = magic == (keyed_ ? kKeyedMagic : kPlainMagic) && target != 0;
  const bool exists = it != sessions_.end() && !it->second.over;
  const bool known =
      wellFormed && exists && it->second.socket == 0 &&
      (it->second.peer == 0 || (it->second.peer == from && from < target && proven(it->second.keys, socket)));
  if (!known) {
    // Otherwise the dialler would try again, although no one will ever answer.
    if (wellFormed && !exists && !keyed_) (void)say({}, socket, kAbort);
    if (const auto gone = wellFormed && keyed_ ? departed(target, socket) : std::nullopt)
      (void)say(gone, socket, kAbort);
    refuse(key);
    return;
  }
  strangers_.erase(key);
  socket.session = target;
  socket.helloFrom = from;
  it->second.socket = key;
  if (it->second.peer == 0) {
    listenTo(key, socket, 0);  // read the rest when we know which peer to expect
  } else if (!say(it->second.keys, socket, kReady)) {
    hungUp(target, "the peer hung up while connecting");
  }
}

void ControlPlane::readMessages(Socket& socket) {
  const std::uint64_t id = socket.session;
  if (sessions_.at(id).peer == 0) {  // it hung up before we knew which peer to expect
    refuse(std::exchange(sessions_.at(id).socket, 0));
    return;
  }
  const ssize_t got =
      recv(socket.fd.get(), socket.message.data() + socket.messageBytes, messageBytes() - socket.messageBytes, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    hungUp(id, got == 0 ? "the peer's process closed its control connection"
                        : fmt::format("the control connection broke: {}", std::strerror(errno)));
    return;
  }
  socket.messageBytes += static_cast<std::size_t>(got);
  if (socket.messageBytes < messageBytes()) return;
  socket.messageBytes = 0;
  heard(id, std::span(socket.message).first(messageBytes()));
}

// The socket, and the session, may be gone afterwards.
void ControlPlane::heard(std::uint64_t sessionId, std::span<const std::byte> message) {
  Session& session = sessions_.at(sessionId);
  const char what = static_cast<char>(message[0]);
  const bool known = what == kReady || what == kAbort;
  if (session.keys) {
    const ControlTokens& peer = session.keys->peer;
    if (!known || !security::equal(message.subspan(1), what == kReady ? peer.ready : peer.abort)) {
      ++forged_;
      return;
    }
  }
  if (!known) return;
  if (what == kAbort) {
    lost(sessionId, true, "the peer aborted the connection");
    return;
  }
  session.peerReady = true;
  session.observer->onPeerReady();
}

bool ControlPlane::proven(const std::optional<ControlKeys>& keys, const Socket& socket) {
  return !keys || security::equal(std::span(socket.hello).subspan(kPlainHelloBytes), keys->peer.hello);
}

bool ControlPlane::say(const std::optional<ControlKeys>& keys, Socket& socket, char what) {
  std::array<std::byte, 1 + security::kTokenBytes> message{static_cast<std::byte>(what)};
  if (keys) std::ranges::copy(what == kReady ? keys->own.ready : keys->own.abort, message.begin() + 1);
  return send(socket.fd.get(), message.data(), messageBytes(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(messageBytes());
}

// The keys of a session that has gone, or is over. nullopt: there is none, or the socket is not its peer's.
std::optional<ControlKeys> ControlPlane::departed(std::uint64_t session, const Socket& socket) const {
  const auto it = sessions_.find(session);
  if (it != sessions_.end() && it->second.over && it->second.keys && proven(it->second.keys, socket)) {
    return it->second.keys;
  }
  for (const auto& [id, keys] : departed_) {
    if (id == session && proven(keys, socket)) return keys;
  }
  return std::nullopt;
}

void ControlPlane::refuse(std::uint64_t key) {
  const auto it = sockets_.find(key);
  if (it == sockets_.end()) return;
  strangers_.erase(key);
  ++refused_;
  sockets_.erase(it);
}

void ControlPlane::lost(std::uint64_t sessionId, bool aborted, const std::string& cause) {
  const auto it = sessions_.find(sessionId);
  if (it == sessions_.end()) return;
  sockets_.erase(std::exchange(it->second.socket, 0));
  it->second.over = true;
  it->second.observer->onPeerGone(aborted, cause);
}

// Before the peer was ready: the listener may have taken the dialler for a stranger and refused it, or this side may
// have taken a stranger for the peer.
void ControlPlane::hungUp(std::uint64_t sessionId, const std::string& cause) {
  Session& session = sessions_.at(sessionId);
  if (session.peerReady) {
    lost(sessionId, false, cause);
  } else if (session.port == 0) {
    refuse(std::exchange(session.socket, 0));
  } else {
    sockets_.erase(std::exchange(session.socket, 0));
    dialLater(session);
  }
}

void ControlPlane::dropStrangers(TimePoint now) {
  while (!strangers_.empty() && now - sockets_.at(*strangers_.begin()).since > Duration(kHelloTimeout)) {
    refuse(*strangers_.begin());
  }
}

}  // namespace gloo_bypass::verbs
