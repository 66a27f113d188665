// RDMA's control connection: peers and strangers dial a plane on loopback, say anything in any pieces, and hang up. The
// script's first byte says whether sessions have keys, which are always the same. Time is the script's. What a correct
// peer says comes from a second plane, so this file knows nothing of the handshake.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/script.h"
#include "transport/base/check.h"
#include "transport/base/file_descriptor.h"
#include "transport/verbs/control_plane.h"

namespace gloo_bypass::fuzz {
using namespace verbs;
namespace {

constexpr GidBytes kLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
constexpr std::size_t kSessions = 3, kStrangers = 4, kMostSteps = 64, kMostRecorded = 256;
constexpr int kPolls = 8, kAttempts = 200;
constexpr int kPatienceMs = 10;         // for a segment on loopback; a miss makes a script shorter, nothing else
constexpr std::uint64_t kPeerOf = 100;  // session N's peer is N + kPeerOf, which is called; or N - kPeerOf

security::Token tokenOf(unsigned char octet) {
  security::Token token;
  token.fill(std::byte{octet});
  return token;
}

// Of the plane's sessions, and of their peers; none if not `keyed`.
std::optional<ControlKeys> ownKeys(bool keyed) {
  if (!keyed) return {};
  return ControlKeys{.own = {.hello = tokenOf(1), .ready = tokenOf(2), .abort = tokenOf(3)},
                     .peer = {.hello = tokenOf(4), .ready = tokenOf(5), .abort = tokenOf(6)}};
}
std::optional<ControlKeys> peersKeys(bool keyed) {
  auto keys = ownKeys(keyed);
  if (keys) std::swap(keys->own, keys->peer);
  return keys;
}

struct Observer final : ControlObserver {
  void onPeerReady() noexcept override {
    GLOO_BYPASS_CHECK(isOpen && !gone);
    ++ready;
  }
  void onPeerGone(bool, const std::string& cause) noexcept override {
    GLOO_BYPASS_CHECK(isOpen && !gone);
    checkLine(cause);
    gone = true;
  }
  bool isOpen = false, gone = false;
  int ready = 0;
};

// A socket that resets when it closes: thousands of inputs a minute would else use up the ports.
void resetOnClose(const FileDescriptor& socket) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  GLOO_BYPASS_CHECK(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
}

FileDescriptor dial(std::uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  resetOnClose(socket);
  const int atOnce = 1;  // each piece, without waiting for an acknowledgement of the one before
  GLOO_BYPASS_CHECK(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &atOnce, sizeof atOnce) == 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return {};
  return socket;
}

// What a plane says first when it dials for session `from` to session `to`, whatever the handshake is.
std::string recordHello(bool keyed, std::uint64_t from, std::uint64_t to) {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  GLOO_BYPASS_CHECK(::bind(listener.get(), any, length) == 0 && ::listen(listener.get(), 1) == 0 &&
                    ::getsockname(listener.get(), any, &length) == 0);
  Observer observer;
  observer.isOpen = true;
  const auto plane = std::move(ControlPlane::make(kLoopback, keyed)).value();
  plane->open(from, &observer);
  GLOO_BYPASS_CHECK(plane->connect(from, to, kLoopback, ntohs(address.sin_port), peersKeys(keyed)).ok());
  const FileDescriptor called(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string said(kMostRecorded, '\0');
  for (int i = 0; i < kAttempts; ++i) {
    plane->poll(TimePoint{} + std::chrono::hours(1));
    const ssize_t got = ::recv(called.get(), said.data(), said.size(), MSG_DONTWAIT);
    if (got > 0) {
      said.resize(static_cast<std::size_t>(got));
      return said;
    }
    pollfd polled{.fd = called.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&polled, 1, kPatienceMs);
  }
  GLOO_BYPASS_CHECK(false);  // the plane has not dialled
  return {};
}

// Session N of `kSessions` is 1000 + N.
std::uint64_t idOf(std::size_t session) { return 1000 + session; }

class FuzzedPlane {
 public:
  explicit FuzzedPlane(bool keyed) : keyed_(keyed) {}
  void step(Script& script) {
    const std::uint8_t code = script.byte();
    const std::size_t session = (code >> 4) % kSessions;
    FileDescriptor& stranger = strangers_[(code >> 4) % kStrangers];
    switch (code & 15) {
      case 0:
      case 1:
        stranger = dial(plane_->port());
        break;
      case 2:
      case 3:
      case 4:
        sayHello(script, stranger, session);
        break;
      case 5:
      case 6:
        say(stranger, script.take(script.byte() % 64));
        break;
      case 7:
        stranger = {};
        break;
      case 8:
        if (stranger) ::shutdown(stranger.get(), SHUT_WR);
        break;
      case 9:
        open(session);
        break;
      case 10:
        connect(session, (script.byte() & 1) != 0);
        break;
      case 11:
        close(session, (script.byte() & 1) != 0);
        break;
      case 12:
        now_ += std::chrono::milliseconds(script.word());
        break;
      case 14:
        sayWord(script, stranger);
        break;
      default:
        break;
    }
    poll();
  }
  // However it went, an honest peer still connects.
  void expectService() {
    Observer called, dialler;
    called.isOpen = dialler.isOpen = true;
    constexpr std::uint64_t kCalled = 9'000, kDialler = 8'000;
    const auto peer = std::move(ControlPlane::make(kLoopback, keyed_)).value();
    plane_->open(kCalled, &called);
    peer->open(kDialler, &dialler);
    GLOO_BYPASS_CHECK(plane_->connect(kCalled, kDialler, kLoopback, peer->port(), ownKeys(keyed_)).ok());
    GLOO_BYPASS_CHECK(peer->connect(kDialler, kCalled, kLoopback, plane_->port(), peersKeys(keyed_)).ok());
    for (int i = 0; i < kAttempts && (called.ready == 0 || dialler.ready == 0); ++i) {
      pollfd polled[] = {{plane_->fd(), POLLIN, 0}, {peer->fd(), POLLIN, 0}};
      (void)::poll(polled, 2, kPatienceMs);
      plane_->poll(now_);
      peer->poll(now_);
      now_ += std::chrono::milliseconds(10);  // it may have to dial again
    }
    GLOO_BYPASS_CHECK(called.ready > 0 && dialler.ready > 0 && !called.gone && !dialler.gone);
    plane_->close(kCalled, false);
    peer->close(kDialler, false);
  }

 private:
  // A correct hello for a session, with edits.
  void sayHello(Script& script, const FileDescriptor& stranger, std::size_t session) const {
    static const auto kHellos = [] {
      std::array<std::array<std::string, kSessions>, 2> hellos;
      for (const bool keyed : {false, true}) {
        for (std::size_t i = 0; i < kSessions; ++i) hellos[keyed ? 1 : 0][i] = recordHello(keyed, 900, idOf(i));
      }
      return hellos;
    }();
    sayEdited(script, stranger, kHellos[keyed_ ? 1 : 0][session]);
  }
  // A correct "ready" or "abort", with edits, which may leave a part of it.
  void sayWord(Script& script, const FileDescriptor& stranger) const {
    const bool aborts = (script.byte() & 1) != 0;
    std::string word(1, aborts ? 'A' : 'R');
    if (keyed_) word.append(security::kTokenBytes, aborts ? '\6' : '\5');
    sayEdited(script, stranger, word);
  }
  static void sayEdited(Script& script, const FileDescriptor& stranger, const std::string& text) {
    Script edits(script.take(script.byte() % 8));
    say(stranger, edited(octetsOf(text), edits, 2));
  }
  static void say(const FileDescriptor& stranger, std::span<const std::uint8_t> bytes) {
    if (stranger) (void)::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void open(std::size_t session) {
    if (observers_[session].isOpen) return;
    observers_[session] = {};
    observers_[session].isOpen = true;
    connected_[session] = false;
    plane_->open(idOf(session), &observers_[session]);
  }
  void connect(std::size_t session, bool dials) {
    if (!observers_[session].isOpen || observers_[session].gone || std::exchange(connected_[session], true)) return;
    // To its own listener where it dials: what arrives there is one more stranger.
    const std::uint64_t peer = dials ? idOf(session) + kPeerOf : 900;
    (void)plane_->connect(idOf(session), peer, kLoopback, plane_->port(), ownKeys(keyed_));
  }
  void close(std::size_t session, bool abort) {
    if (!std::exchange(observers_[session].isOpen, false)) return;
    plane_->close(idOf(session), abort);
  }
  void poll() {
    for (int i = 0; i < kPolls && plane_->poll(now_); ++i) {
    }
  }

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::array<Observer, kSessions> observers_;
  std::array<bool, kSessions> connected_{};
  std::array<FileDescriptor, kStrangers> strangers_;
  const bool keyed_;
  const std::unique_ptr<ControlPlane> plane_ = std::move(ControlPlane::make(kLoopback, keyed_)).value();
};

}  // namespace

void fuzzControl(std::span<const std::uint8_t> input) {
  Script script(input);
  FuzzedPlane plane((script.byte() & 1) != 0);
  for (std::size_t step = 0; step < kMostSteps && !script.done(); ++step) plane.step(script);
  plane.expectService();
}

}  // namespace gloo_bypass::fuzz
