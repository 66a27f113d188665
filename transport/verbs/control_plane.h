// One TCP connection beside each channel's queue pairs. It tells two things that queue pairs cannot: that the peer is
// ready to receive (before that, what is sent is lost and retried until the connection breaks), and that the peer's
// process has ended (an adapter that only receives never notices). No payload goes over it.
//
// The side with the smaller session id dials. Little-endian, the dialler first:
//   hello "GBC1" | u32 0 | u64 session of the one called | u64 session of the dialler;  then each side, a byte each:
//   'R' my queue pairs can receive   'A' I abort the connection, or: the session called is not there any more
//
// Anybody may connect to the listener. Who has not said hello is a stranger: kept for 10 s, and at most 256 of them, of
// whom the oldest makes room. A dialler that is hung up on before the peer was ready may have been one of those: it
// dials again, until close(). Who is dialled waits as long for its peer to say that it is ready.
//
// Owner: the transport. Thread: every method needs the progress engine's exclusive access; fd() may be polled by any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/verbs/rdma_address.h"

namespace gloo_bypass::verbs {

// Told from inside ControlPlane::poll. May call the plane.
class ControlObserver {
 public:
  virtual ~ControlObserver() = default;
  virtual void onPeerReady() noexcept = 0;
  // The connection is over. `aborted`: the peer said so, else its process or its host went away.
  virtual void onPeerGone(bool aborted, const std::string& cause) noexcept = 0;
};

class ControlPlane {
 public:
  // Listens on `ip`, any port. Errors: kUnavailable, naming the address.
  static Result<std::unique_ptr<ControlPlane>> make(const GidBytes& ip);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  std::uint16_t port() const { return port_; }
  // Readable when poll() has something to do. For epoll; do not read.
  int fd() const { return epoll_.get(); }
  // When poll() must be called at the latest although fd() is not readable; kNever for no timer.
  TimePoint deadline() const { return nextDial_; }

  // A session that peers may dial. `observer` must live until close().
  void open(std::uint64_t session, ControlObserver* observer);
  // This side is ready. Dials, or says so to the peer that dials.
  Status connect(std::uint64_t session, std::uint64_t peer, const GidBytes& ip, std::uint16_t port);
  void close(std::uint64_t session, bool abort);

  // True if anything happened.
  bool poll(TimePoint now);

  std::uint64_t refusedConnections() const {
    return refused_;
  }  // strangers, and hellos for sessions that are not there

 private:
  struct Session {
    ControlObserver* observer = nullptr;
    std::uint64_t peer = 0;    // 0: connect() was not called yet
    std::uint64_t socket = 0;  // key in sockets_; 0: none
    bool peerReady = false;
    // Where to dial; port 0: the peer does.
    GidBytes ip{};
    std::uint16_t port = 0;
    TimePoint dialAt = kNever;
    Duration pause{0};  // before the next dialling
  };
  struct Socket {
    FileDescriptor fd;
    std::uint64_t session = 0;    // 0: no hello yet
    std::uint64_t helloFrom = 0;  // who the dialler says it is
    bool dialling = false;
    TimePoint since{};  // accepted then
    std::array<std::byte, 24> hello{};
    std::size_t helloBytes = 0;
  };

  ControlPlane() = default;
  Status listen(const GidBytes& ip);
  Status dial(std::uint64_t id, Session& session);
  void dialLater(Session& session);
  void dialDue(TimePoint now);
  std::uint64_t add(Socket socket, std::uint32_t events);
  void acceptAll(TimePoint now);
  bool turnAwayOne();
  void handle(std::uint64_t key);
  void listenTo(std::uint64_t key, const Socket& socket, std::uint32_t events);
  void onDialled(std::uint64_t key, Socket& socket);
  void readHello(std::uint64_t key, Socket& socket);
  void readMessages(Socket& socket);
  bool say(Socket& socket, char what);
  void refuse(std::uint64_t key);
  void lost(std::uint64_t sessionId, bool aborted, const std::string& cause);
  void hungUp(std::uint64_t sessionId, const std::string& cause);
  void dropStrangers(TimePoint now);

  FileDescriptor listener_, epoll_;
  FileDescriptor spare_;  // given up for a moment when no other is left
  std::uint16_t port_ = 0;
  std::uint64_t nextKey_ = 1;
  std::unordered_map<std::uint64_t, Session> sessions_;
  std::unordered_map<std::uint64_t, Socket> sockets_;
  std::set<std::uint64_t> strangers_;  // keys of sockets without a hello; the oldest first
  TimePoint now_{};                    // of the last poll()
  TimePoint nextDial_ = kNever;        // the earliest of the sessions'
  std::uint64_t refused_ = 0;
};

}  // namespace gloo_bypass::verbs
