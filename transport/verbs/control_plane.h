// One TCP connection beside each channel's queue pairs. It reports two things that queue pairs cannot. First, that the
// peer is ready to receive: earlier messages are lost and retried until the connection breaks. Second, that the peer's
// process has ended: an adapter that only receives never notices. It carries no payload.
//
// The side with the smaller session id dials. Little-endian, the dialler first:
//   hello "GBC1" | u32 0 | u64 session of the one called | u64 session of the dialler;  then each side, a byte each:
//   'R' my queue pairs can receive   'A' I abort the connection, or: the session called does not exist any more
//
// Of sessions with keys (transport/security) the hello is "GBC2", and it and each byte are followed by a token of 16
// bytes that only the two ranks know. So nobody else takes the peer's place, or says that it is ready or aborts; what
// others say is counted and ignored. Whoever resets the TCP connection still ends the session. A session that went
// before it had keys cannot say so: the dialler tries again, until close().
//
// Anyone may connect to the listener. A connection without a hello is a stranger: kept for 10 s, and at most 256 of
// them; the oldest makes room. The listener may have taken a dialler for one of those and hung up before the peer was
// ready: the dialler tries again, until close(). The called side waits as long for its peer to report that it is ready.
//
// Owner: the transport. Thread: every method needs the progress engine's exclusive access; any thread may poll fd().
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/network/endpoint.h"
#include "transport/security/key_agreement.h"
#include "transport/verbs/rdma_address.h"

namespace gloo_bypass::verbs {

// An IPv4 address is mapped (::ffff:a.b.c.d), as RoCEv2 has it.
network::Endpoint endpointOf(const GidBytes& ip, std::uint16_t port);
GidBytes bytesOf(network::Endpoint address);

// Called from inside ControlPlane::poll. May call the plane.
class ControlObserver {
 public:
  virtual ~ControlObserver() = default;
  virtual void onPeerReady() noexcept = 0;
  // The connection is over. `aborted`: the peer said so; else its process or its host is gone.
  virtual void onPeerGone(bool aborted, const std::string& cause) noexcept = 0;
};

// Shown by one side.
struct ControlTokens {
  security::Token hello{}, ready{}, abort{};
};
struct ControlKeys {
  ControlTokens own, peer;
};
// After its accept().
ControlKeys controlKeysOf(const security::KeyAgreement& agreement);

class ControlPlane {
 public:
  // Listens on `ip`, any port. `keyed`: its sessions have keys, or have none. `patience`: how long a peer's host may be
  // silent. Errors: kUnavailable, with the address.
  static constexpr std::chrono::seconds kLeastPatience{15};
  static Result<std::unique_ptr<ControlPlane>> make(const GidBytes& ip, bool keyed = false,
                                                    std::chrono::seconds patience = kLeastPatience);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  std::uint16_t port() const { return port_; }
  // Readable when poll() has something to do. For epoll; do not read.
  int fd() const { return epoll_.get(); }
  // The latest time to call poll() although fd() is not readable; kNever for no timer.
  TimePoint deadline() const { return nextDial_; }

  // Lets peers dial `session`. `observer` must live until close().
  void open(std::uint64_t session, ControlObserver* observer);
  // This side is ready. It dials, or sends its 'R' to the peer that dials. `keys`: of a keyed plane, and only then.
  Status connect(std::uint64_t session, std::uint64_t peer, const GidBytes& ip, std::uint16_t port,
                 const std::optional<ControlKeys>& keys = {});
  void close(std::uint64_t session, bool abort);
  // "by TCP to 10.0.0.2:47777": which way a session's connection is made, for errors.
  std::string wayOf(std::uint64_t session) const;

  // True if anything happened.
  bool poll(TimePoint now);

  // Strangers, hellos for unknown sessions or without the right token.
  std::uint64_t refusedConnections() const { return refused_; }
  // Bytes on connections of keyed sessions without the right token.
  std::uint64_t forgedMessages() const { return forged_; }

 private:
  static constexpr std::size_t kPlainHelloBytes = 24;
  struct Session {
    ControlObserver* observer = nullptr;
    std::uint64_t peer = 0;    // 0: connect() was not called yet
    std::uint64_t socket = 0;  // key in sockets_; 0: none
    bool peerReady = false;
    std::optional<ControlKeys> keys;
    bool over = false;  // the observer knows that the peer is gone
    // Where to dial; port 0: the peer dials.
    GidBytes ip{};
    std::uint16_t port = 0;
    TimePoint dialAt = kNever;
    Duration pause{0};  // before the next attempt
  };
  struct Socket {
    FileDescriptor fd;
    std::uint64_t session = 0;    // 0: no hello yet
    std::uint64_t helloFrom = 0;  // the dialler's session, as it claims
    bool dialling = false;
    TimePoint since{};  // time of accept
    std::array<std::byte, kPlainHelloBytes + security::kTokenBytes> hello{};
    std::size_t helloBytes = 0;
    std::array<std::byte, 1 + security::kTokenBytes> message{};  // a part of one
    std::size_t messageBytes = 0;
  };

  ControlPlane(bool keyed, std::chrono::seconds patience) : keyed_(keyed), patience_(patience) {}
  std::size_t helloBytes() const { return kPlainHelloBytes + (keyed_ ? security::kTokenBytes : 0); }
  std::size_t messageBytes() const { return 1 + (keyed_ ? security::kTokenBytes : 0); }
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
  void heard(std::uint64_t sessionId, std::span<const std::byte> message);
  static bool proven(const std::optional<ControlKeys>& keys, const Socket& socket);
  bool say(const std::optional<ControlKeys>& keys, Socket& socket, char what);
  void refuse(std::uint64_t key);
  std::optional<ControlKeys> departed(std::uint64_t session, const Socket& socket) const;
  void lost(std::uint64_t sessionId, bool aborted, const std::string& cause);
  void hungUp(std::uint64_t sessionId, const std::string& cause);
  void dropStrangers(TimePoint now);

  const bool keyed_;
  const std::chrono::seconds patience_;
  GidBytes ip_{};
  FileDescriptor listener_, epoll_;
  FileDescriptor spare_;  // a spare descriptor, closed for a moment when no other is left
  std::uint16_t port_ = 0;
  std::uint64_t nextKey_ = 1;
  std::unordered_map<std::uint64_t, Session> sessions_;
  std::unordered_map<std::uint64_t, Socket> sockets_;
  // Of keyed sessions that went before their peer dialled: how to tell it. Not of those that dial. The oldest first, at
  // most kMostDeparted.
  std::deque<std::pair<std::uint64_t, ControlKeys>> departed_;
  std::set<std::uint64_t> strangers_;  // keys of sockets without a hello, the oldest first
  TimePoint now_{};                    // of the last poll()
  TimePoint nextDial_ = kNever;        // the sessions' earliest
  std::uint64_t refused_ = 0, forged_ = 0;
};

}  // namespace gloo_bypass::verbs
