// Two planes on loopback, and strangers.
#include "transport/verbs/control_plane.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/no_more_descriptors.h"
#include "tests/support/refused_call.h"
#include "transport/base/byte_order.h"
#include "transport/base/forked_child.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::verbs {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
const GidBytes kLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

struct Told final : ControlObserver {
  void onPeerReady() noexcept override { ++ready; }
  void onPeerGone(bool wasAborted, const std::string& why) noexcept override {
    ++gone;
    aborted = wasAborted;
    cause = why;
  }
  int ready = 0, gone = 0;
  bool aborted = false;
  std::string cause;
};

// A peer's listener without a plane behind it.
struct Listener {
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd.get(), 8), 0);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port = ntohs(address.sin_port);
  }
  FileDescriptor accept() const { return FileDescriptor(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

  FileDescriptor fd{socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  std::uint16_t port = 0;
};

std::size_t openDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

struct ControlPlaneTest : ::testing::Test {
  void SetUp() override { start(false); }
  void start(bool keyed) {
    a = std::move(ControlPlane::make(kLoopback, keyed).value());
    b = std::move(ControlPlane::make(kLoopback, keyed).value());
    a->open(kA, &atA);
    b->open(kB, &atB);
  }
  // Sleeps until a plane has something to do.
  bool until(const std::function<bool()>& condition) {
    const TimePoint deadline = monotonicNow() + kPatience;
    while (!condition()) {
      if (monotonicNow() > deadline) return false;
      pollfd fds[] = {{a ? a->fd() : -1, POLLIN, 0}, {b ? b->fd() : -1, POLLIN, 0}};
      (void)::poll(fds, 2, 100);
      if (a) a->poll(now);
      if (b) b->poll(now);
    }
    return true;
  }
  Status connectA() { return a->connect(kA, kB, kLoopback, b->port()); }
  Status connectB() { return b->connect(kB, kA, kLoopback, a->port()); }
  void connectBoth() {
    ASSERT_TRUE(connectA().ok());
    ASSERT_TRUE(connectB().ok());
    ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
  }
  FileDescriptor stranger(const ControlPlane& plane) {
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(plane.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static std::array<char, 24> hello(std::uint64_t to, std::uint64_t from, const char* magic = "GBC1") {
    std::array<char, 24> bytes{};
    std::memcpy(bytes.data(), magic, 4);
    storeLittle(reinterpret_cast<std::byte*>(bytes.data()) + 8, to);
    storeLittle(reinterpret_cast<std::byte*>(bytes.data()) + 16, from);
    return bytes;
  }
  // Idle: nothing to read, and poll() reports nothing. Data that the kernel delivers late, between two calls, is work.
  static bool idle(ControlPlane& plane, TimePoint when) {
    for (int i = 0; i < 100; ++i) {
      if (plane.poll(when)) continue;
      pollfd fd{plane.fd(), POLLIN, 0};
      if (::poll(&fd, 1, 0) == 0 && !plane.poll(when)) return true;
    }
    return false;
  }

  static constexpr std::uint64_t kA = 100, kB = 200;
  TimePoint now = TimePoint{} + std::chrono::hours(1);
  Told atA, atB;
  std::unique_ptr<ControlPlane> a, b;
};

TEST_F(ControlPlaneTest, DiallerConnectsFirst_BothHearThatTheOtherIsReady) {
  ASSERT_TRUE(connectA().ok());
  for (int i = 0; i < 50; ++i) {
    a->poll(now);
    b->poll(now);
  }
  EXPECT_EQ(atA.ready, 0) << "the other side has not said so";
  ASSERT_TRUE(connectB().ok());
  ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
  EXPECT_TRUE(idle(*a, now));
  EXPECT_TRUE(idle(*b, now));
}

TEST_F(ControlPlaneTest, CalledSideConnectsFirst_BothHearThatTheOtherIsReady) {
  ASSERT_TRUE(connectB().ok());
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
}

TEST_F(ControlPlaneTest, DiallersHelloWaitsForConnect_PlaneIsIdleMeanwhile) {
  ASSERT_TRUE(connectA().ok());
  for (int i = 0; i < 50; ++i) {
    a->poll(now);
    b->poll(now);
  }
  EXPECT_TRUE(idle(*b, now));
  EXPECT_EQ(atB.ready, 0);
  ASSERT_TRUE(connectB().ok());
  ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
}

TEST_F(ControlPlaneTest, PeersProcessEnds_IsToldOnce) {
  connectBoth();
  b.reset();
  ASSERT_TRUE(until([&] { return atA.gone > 0; }));
  EXPECT_FALSE(atA.aborted);
  EXPECT_FALSE(atA.cause.empty());
  EXPECT_TRUE(idle(*a, now));
  EXPECT_EQ(atA.gone, 1);
}

// A data loader's child, for one.
TEST_F(ControlPlaneTest, PeersProcessIsKilledWhileItsChildLives_IsToldAtOnce) {
  ASSERT_TRUE(connectB().ok());
  a.reset();  // the other process has its own
  int line[2], hold[2];
  ASSERT_EQ(pipe2(line, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(hold, O_CLOEXEC), 0);
  FileDescriptor ready(line[0]), tell(line[1]), childsEnd(hold[0]), ours(hold[1]);
  const std::uint16_t port = b->port();
  const pid_t rank = fork();
  if (rank == 0) {
    ours.reset();
    a = std::move(ControlPlane::make(kLoopback).value());
    a->open(kA, &atA);
    b.reset();
    if (!a->connect(kA, kB, kLoopback, port).ok() || !until([&] { return atA.ready == 1; })) _exit(1);
    if (fork() == 0) {
      forked_child::giveFree();
      const char byte = 1;
      (void)!write(tell.get(), &byte, 1);
      char end;
      (void)!read(childsEnd.get(), &end, 1);  // until the test is over
      _exit(0);
    }
    for (;;) pause();
  }
  tell.reset();
  ASSERT_TRUE(until([&] { return atB.ready == 1; }));
  char byte = 0;
  ASSERT_EQ(read(ready.get(), &byte, 1), 1);
  EXPECT_EQ(atB.gone, 0);
  kill(rank, SIGKILL);
  EXPECT_TRUE(until([&] { return atB.gone == 1; }));
  EXPECT_FALSE(atB.aborted);
  EXPECT_EQ(waitpid(rank, nullptr, 0), rank);
}

TEST_F(ControlPlaneTest, Abort_IsToldAsSuch) {
  connectBoth();
  b->close(kB, true);
  ASSERT_TRUE(until([&] { return atA.gone > 0; }));
  EXPECT_TRUE(atA.aborted);
  EXPECT_EQ(atB.gone, 0);
}

// How long the connections of this process that look after silent hosts are silent until then.
std::chrono::seconds longestSilence() {
  int longest = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int alive = 0, idle = 0, interval = 0, probes = 0;
    socklen_t length = sizeof alive;
    if (getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &alive, &length) != 0 || alive == 0) continue;
    EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &length), 0);
    EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, &length), 0);
    EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, &length), 0);
    longest = std::max(longest, idle + interval * probes);
  }
  return std::chrono::seconds(longest);
}

// An adapter may go on trying for minutes, as its settings say.
TEST_F(ControlPlaneTest, SilentHost_IsGivenUpNoSoonerThanTheAdapterGivesUp) {
  for (const auto& [patience, expected] : {std::pair(15, 15), {3, 15}, {137, 137}, {1000, 995}}) {
    a = std::move(ControlPlane::make(kLoopback, false, std::chrono::seconds(patience)).value());
    a->open(kA, &atA);
    ASSERT_TRUE(a->connect(kA, kB, kLoopback, b->port()).ok());
    EXPECT_EQ(longestSilence(), std::chrono::seconds(expected)) << patience;
  }
}

TEST_F(ControlPlaneTest, DialToClosedPort_IsToldWithTheReason) {
  const std::uint16_t port = b->port();
  b.reset();
  const Status dialled = a->connect(kA, kB, kLoopback, port);
  if (dialled.ok()) {
    ASSERT_TRUE(until([&] { return atA.gone > 0; }));
    EXPECT_NE(atA.cause.find("refused"), std::string::npos) << atA.cause;
    EXPECT_NE(atA.cause.find("by TCP to 127.0.0.1:" + std::to_string(port)), std::string::npos) << atA.cause;
  }
  EXPECT_TRUE(idle(*a, now));
}

TEST_F(ControlPlaneTest, SandboxRefusesACall_ErrorNamesIt) {
  for (const auto& [name, call] : {std::pair("epoll_create1", SYS_epoll_create1),
                                   {"socket", SYS_socket},
                                   {"eventfd2", SYS_eventfd2},
                                   {"getsockname", SYS_getsockname},
                                   {"epoll_ctl", SYS_epoll_ctl},
                                   {"epoll_wait", SYS_epoll_wait},
                                   {"accept4", SYS_accept4}}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!test::refuseCall(call, EPERM)) ::_exit(77);
      const auto made = ControlPlane::make(kLoopback);
      const std::string said = made ? "made" : made.error().message;
      const bool named = said.find(name) != std::string::npos;
      if (!named) std::fprintf(stderr, "%s: %s\n", name, said.c_str());
      ::_exit(named ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "there are no seccomp filters here";
    EXPECT_EQ(status, 0) << name;
  }
}

TEST_F(ControlPlaneTest, WrongHellos_AreRefusedAndTheRightOneStillConnects) {
  ASSERT_TRUE(connectB().ok());
  const std::array<char, 24> wrong[] = {hello(kB, kA, "HTTP"), hello(kB + 1, kA), hello(0, kA), hello(kB, kA + 1),
                                        hello(kB, kB + 7)};
  std::uint64_t refused = b->refusedConnections();
  for (const auto& bytes : wrong) {
    const FileDescriptor fd = stranger(*b);
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    ++refused;
    ASSERT_TRUE(until([&] { return b->refusedConnections() == refused; }));
    char byte;
    while (recv(fd.get(), &byte, 1, 0) > 0) EXPECT_EQ(byte, 'A');  // then closed
  }
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
}

TEST_F(ControlPlaneTest, HalfHello_DoesNotSpinAndIsDroppedInTime) {
  const FileDescriptor fd = stranger(*b);
  const auto bytes = hello(kB, kA);
  ASSERT_EQ(send(fd.get(), bytes.data(), 10, MSG_NOSIGNAL), 10);
  (void)until([&, polls = 0]() mutable { return ++polls > 3; });
  EXPECT_TRUE(idle(*b, now));
  EXPECT_EQ(b->refusedConnections(), 0u);
  b->poll(now + std::chrono::seconds(11));
  EXPECT_EQ(b->refusedConnections(), 1u);
  EXPECT_TRUE(idle(*b, now));
}

TEST_F(ControlPlaneTest, StrangerHangsUp_IsForgotten) {
  {
    const FileDescriptor fd = stranger(*b);
  }
  ASSERT_TRUE(until([&] { return b->refusedConnections() == 1; }));
  FileDescriptor half = stranger(*b);
  const auto bytes = hello(kB, kA);
  (void)!send(half.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  (void)until([&, polls = 0]() mutable { return ++polls > 3; });
  half.reset();  // known by its hello, and gone before we knew whom to expect
  EXPECT_TRUE(idle(*b, now));
  ASSERT_TRUE(connectB().ok());
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] {
    if (a->deadline() != kNever) now = a->deadline();
    return atA.ready == 1 && atB.ready == 1;
  }));
  EXPECT_EQ(atB.gone, 0);
  EXPECT_EQ(atA.gone, 0);
}

TEST_F(ControlPlaneTest, MoreStrangersThanMayBe_TheOldestMakeRoomForAnHonestPeer) {
  std::vector<FileDescriptor> all;
  for (int i = 0; i < 300; ++i) {
    all.push_back(stranger(*b));
    b->poll(now);
  }
  ASSERT_TRUE(until([&] { return b->refusedConnections() >= 44; }));
  EXPECT_EQ(b->refusedConnections(), 44u);
  char byte;
  EXPECT_EQ(recv(all[43].get(), &byte, 1, MSG_DONTWAIT), 0) << "closed";
  EXPECT_EQ(recv(all[44].get(), &byte, 1, MSG_DONTWAIT), -1) << "not closed";
  EXPECT_TRUE(idle(*b, now));
  connectBoth();
  EXPECT_EQ(b->refusedConnections(), 45u);
  b->poll(now + std::chrono::seconds(11));
  EXPECT_EQ(b->refusedConnections(), 300u);
  EXPECT_TRUE(idle(*b, now));
}

TEST_F(ControlPlaneTest, HelloUnreadWhileStrangersPour_IsReadBeforeItsSenderMakesRoom) {
  ASSERT_TRUE(connectB().ok());
  const FileDescriptor honest = stranger(*b);
  std::vector<FileDescriptor> all;
  b->poll(now);
  const auto bytes = hello(kB, kA);
  ASSERT_EQ(send(honest.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  for (int i = 0; i < 300; ++i) all.push_back(stranger(*b));
  ASSERT_TRUE(until([&] { return b->refusedConnections() >= 44; }));
  char byte = 0;
  EXPECT_EQ(recv(honest.get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'R');
}

TEST_F(ControlPlaneTest, HungUpOnBeforeThePeerWasReady_DialsAgain) {
  Listener peer;
  ASSERT_TRUE(a->connect(kA, kB, kLoopback, peer.port).ok());
  TimePoint time = now;
  for (int i = 0; i < 5; ++i) {
    FileDescriptor turnedAway;
    ASSERT_TRUE(until([&] { return static_cast<bool>(turnedAway = peer.accept()); })) << i;
    turnedAway.reset();
    ASSERT_TRUE(until([&] { return a->deadline() != kNever; })) << i;
    EXPECT_GT(a->deadline(), time) << "not at once";
    EXPECT_LE(a->deadline(), time + std::chrono::seconds(1));
    a->poll(a->deadline() - std::chrono::milliseconds(1));
    EXPECT_FALSE(peer.accept());
    time = a->deadline();
    a->poll(time);
    EXPECT_EQ(a->deadline(), kNever);
    now = time;
  }
  FileDescriptor taken;
  ASSERT_TRUE(until([&] { return static_cast<bool>(taken = peer.accept()); }));
  ASSERT_EQ(send(taken.get(), "R", 1, MSG_NOSIGNAL), 1);
  ASSERT_TRUE(until([&] { return atA.ready == 1; }));
  EXPECT_EQ(atA.gone, 0);
  taken.reset();  // from now on it is the peer's end
  ASSERT_TRUE(until([&] { return atA.gone == 1; }));
  EXPECT_EQ(a->deadline(), kNever);
}

TEST_F(ControlPlaneTest, HungUpOnAndThenNobodyListens_IsToldWithTheReason) {
  Listener peer;
  ASSERT_TRUE(a->connect(kA, kB, kLoopback, peer.port).ok());
  ASSERT_TRUE(until([&] { return static_cast<bool>(peer.accept()); }));
  peer.fd.reset();
  ASSERT_TRUE(until([&] {
    now = std::max(now, a->deadline() == kNever ? now : a->deadline());
    return atA.gone > 0;
  }));
  EXPECT_NE(atA.cause.find("refused"), std::string::npos) << atA.cause;
  EXPECT_FALSE(atA.aborted);
}

TEST_F(ControlPlaneTest, ClosedWhileItWouldDialAgain_DialsNoMore) {
  Listener peer;
  ASSERT_TRUE(a->connect(kA, kB, kLoopback, peer.port).ok());
  ASSERT_TRUE(until([&] { return static_cast<bool>(peer.accept()); }));
  ASSERT_TRUE(until([&] { return a->deadline() != kNever; }));
  a->close(kA, true);
  a->poll(now + std::chrono::seconds(1));
  EXPECT_FALSE(peer.accept());
  EXPECT_EQ(a->deadline(), kNever);
}

TEST_F(ControlPlaneTest, SessionCalledIsNotThereAnyMore_DiallerIsToldAtOnce) {
  b->close(kB, false);
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] { return atA.gone > 0; }));
  EXPECT_TRUE(atA.aborted);
  EXPECT_EQ(b->refusedConnections(), 1u);
}

// Two ranks with keys, and whoever else reaches their listeners.
struct KeyedControlPlaneTest : ControlPlaneTest {
  static constexpr std::size_t kHello = 24 + security::kTokenBytes, kMessage = 1 + security::kTokenBytes;

  void SetUp() override { start(true); }
  static ControlTokens tokens(int seed) {
    ControlTokens made;
    for (security::Token* token : {&made.hello, &made.ready, &made.abort}) token->fill(static_cast<std::byte>(++seed));
    return made;
  }
  static ControlKeys keysOfA() { return {.own = tokens(10), .peer = tokens(20)}; }
  static ControlKeys keysOfB() { return {.own = tokens(20), .peer = tokens(10)}; }
  Status connectA() { return a->connect(kA, kB, kLoopback, b->port(), keysOfA()); }
  Status connectB() { return b->connect(kB, kA, kLoopback, a->port(), keysOfB()); }
  // A's hello and a message.
  static std::string said(const security::Token& first, char what, const security::Token& second) {
    const auto plain = hello(kB, kA, "GBC2");
    std::string bytes(plain.begin(), plain.end());
    bytes.append(reinterpret_cast<const char*>(first.data()), first.size());
    bytes += what;
    return bytes.append(reinterpret_cast<const char*>(second.data()), second.size());
  }
  static void send(const FileDescriptor& to, const std::string& bytes) {
    ASSERT_EQ(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
};

TEST_F(KeyedControlPlaneTest, BothHaveTheKeys_ConnectInEitherOrderAndAbort) {
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&, polls = 0]() mutable { return ++polls > 3; }));
  EXPECT_EQ(atA.ready, 0);
  ASSERT_TRUE(connectB().ok());
  ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
  b->close(kB, true);
  ASSERT_TRUE(until([&] { return atA.gone > 0; }));
  EXPECT_TRUE(atA.aborted);
  EXPECT_EQ(a->forgedMessages() + b->forgedMessages(), 0u);
}

TEST_F(KeyedControlPlaneTest, StrangerWhoKnowsTheSessions_DoesNotTakeThePeersPlace) {
  ASSERT_TRUE(connectB().ok());
  std::uint64_t refused = 0;
  const ControlTokens right = tokens(10);
  for (const std::string& bytes : {said(tokens(30).hello, 'R', right.ready), said(right.ready, 'R', right.ready),
                                   said({}, 'R', {}), std::string(41, 'R')}) {
    const FileDescriptor fd = stranger(*b);
    send(fd, bytes);
    ++refused;
    ASSERT_TRUE(until([&] { return b->refusedConnections() == refused; }));
  }
  // Without keys.
  const FileDescriptor fd = stranger(*b);
  const auto plain = hello(kB, kA);
  send(fd, std::string(plain.begin(), plain.end()) + std::string(kMessage, 'R'));
  ASSERT_TRUE(until([&] { return b->refusedConnections() == refused + 1; }));
  EXPECT_EQ(atB.ready, 0);
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] { return atA.ready == 1 && atB.ready == 1; }));
}

TEST_F(KeyedControlPlaneTest, StrangerBeforeConnect_GivesWayToThePeer) {
  const FileDescriptor fd = stranger(*b);
  send(fd, said(tokens(30).hello, 'R', tokens(30).ready));
  ASSERT_TRUE(until([&, polls = 0]() mutable { return ++polls > 3; }));
  ASSERT_TRUE(connectB().ok());
  EXPECT_EQ(b->refusedConnections(), 1u);
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] {
    if (a->deadline() != kNever) now = a->deadline();
    return atA.ready == 1 && atB.ready == 1;
  }));
}

TEST_F(KeyedControlPlaneTest, ForgedWords_AreCountedAndEndNothing) {
  ASSERT_TRUE(connectB().ok());
  const ControlTokens right = tokens(10), wrong = tokens(30);
  const FileDescriptor fd = stranger(*b);
  send(fd, said(right.hello, 'R', wrong.ready));
  const auto message = [](char what, const security::Token& token) {
    return what + std::string(reinterpret_cast<const char*>(token.data()), token.size());
  };
  send(fd,
       message('A', wrong.abort) + message('A', right.ready) + message('R', right.abort) + message('X', right.abort));
  ASSERT_TRUE(until([&] { return b->forgedMessages() == 5; }));
  EXPECT_EQ(atB.ready, 0);
  EXPECT_EQ(atB.gone, 0);
  send(fd, message('R', right.ready));
  ASSERT_TRUE(until([&] { return atB.ready == 1; }));
  send(fd, message('A', right.abort));
  ASSERT_TRUE(until([&] { return atB.gone == 1; }));
  EXPECT_TRUE(atB.aborted);
}

TEST_F(KeyedControlPlaneTest, WordInPieces_IsHeardOnceWhole) {
  Listener peer;
  ASSERT_TRUE(a->connect(kA, kB, kLoopback, peer.port, keysOfA()).ok());
  FileDescriptor taken;
  ASSERT_TRUE(until([&] { return static_cast<bool>(taken = peer.accept()); }));
  std::string sent(kHello + kMessage, 0);
  std::size_t got = 0;
  ASSERT_TRUE(until([&] {
    const ssize_t more = recv(taken.get(), sent.data() + got, sent.size() - got, MSG_DONTWAIT);
    got += more > 0 ? static_cast<std::size_t>(more) : 0;
    return got == sent.size();
  }));
  EXPECT_EQ(sent, said(tokens(10).hello, 'R', tokens(10).ready));
  const security::Token ready = tokens(20).ready;
  send(taken, "R");
  (void)until([&, polls = 0]() mutable { return ++polls > 3; });
  EXPECT_EQ(atA.ready, 0);
  send(taken, std::string(reinterpret_cast<const char*>(ready.data()), ready.size()));
  ASSERT_TRUE(until([&] { return atA.ready == 1; }));
}

TEST_F(KeyedControlPlaneTest, SessionCalledHasGone_ItsPeerAloneIsTold) {
  ASSERT_TRUE(connectB().ok());
  b->close(kB, true);
  const FileDescriptor fd = stranger(*b);
  send(fd, said(tokens(30).hello, 'R', tokens(30).ready));
  ASSERT_TRUE(until([&] { return b->refusedConnections() == 1; }));
  char byte;
  EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0);
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] { return atA.gone > 0; }));
  EXPECT_TRUE(atA.aborted);
}

// They would dial: nobody asks for them.
TEST_F(KeyedControlPlaneTest, DiallersHaveGone_OnlyTheOneCalledIsRemembered) {
  const Listener nobody;
  ASSERT_TRUE(connectB().ok());
  b->close(kB, true);
  Told told;
  for (int i = 0; i < 300; ++i) {
    b->open(1, &told);
    ASSERT_TRUE(b->connect(1, 2, kLoopback, nobody.port, keysOfB()).ok());
    ASSERT_TRUE(until([&] {
      (void)nobody.accept();  // hangs up
      return b->deadline() != kNever;
    }));
    b->close(1, true);
    b->poll(now = b->deadline());  // the timer runs out
  }
  ASSERT_TRUE(connectA().ok());
  ASSERT_TRUE(until([&] { return atA.gone > 0; }));
  EXPECT_TRUE(atA.aborted);
}

TEST_F(KeyedControlPlaneTest, PlainAbortFromWhoeverAnswers_IsNotBelieved) {
  Listener peer;
  ASSERT_TRUE(a->connect(kA, kB, kLoopback, peer.port, keysOfA()).ok());
  FileDescriptor taken;
  ASSERT_TRUE(until([&] { return static_cast<bool>(taken = peer.accept()); }));
  send(taken, "A");
  taken.reset();
  ASSERT_TRUE(until([&] { return a->deadline() != kNever; }));
  EXPECT_EQ(atA.gone, 0) << "it dials again";
}

TEST_F(ControlPlaneTest, NoDescriptorsLeft_StrangerDoesNotKeepThePlaneBusy) {
  const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(b->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ControlPlane& plane = *b;  // sanitizers look at `this` through descriptors, and there will be none
  const TimePoint when = now;
  std::optional<test::NoMoreDescriptors> none(std::in_place);
  const int connected = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  pollfd knocking{plane.fd(), POLLIN, 0};
  const int seen = ::poll(&knocking, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
  const bool quiet = idle(plane, when);
  none.reset();
  ASSERT_EQ(connected, 0);
  ASSERT_EQ(seen, 1);
  EXPECT_TRUE(quiet);
  EXPECT_EQ(b->refusedConnections(), 1u);
  connectBoth();
}

TEST_F(ControlPlaneTest, NoDescriptorsLeft_PlaneAndConnectionNameTheLimit) {
  std::optional<test::NoMoreDescriptors> none(std::in_place);
  const Status connection = connectA();
  const auto plane = ControlPlane::make(kLoopback);
  none.reset();
  ASSERT_FALSE(connection.ok());
  ASSERT_FALSE(plane.ok());
  for (const Error& error : {connection.error(), plane.error()}) {
    EXPECT_EQ(error.code, ErrorCode::kExhausted);
    EXPECT_NE(error.message.find("RLIMIT_NOFILE"), std::string::npos) << error.message;
  }
}

TEST_F(ControlPlaneTest, ManyConnections_LeakNoDescriptor) {
  const std::size_t before = openDescriptors();
  for (std::uint64_t i = 1; i <= 200; ++i) {
    Told here, there;
    a->open(1000 + i, &here);
    b->open(2000 + i, &there);
    ASSERT_TRUE(a->connect(1000 + i, 2000 + i, kLoopback, b->port()).ok());
    ASSERT_TRUE(b->connect(2000 + i, 1000 + i, kLoopback, a->port()).ok());
    ASSERT_TRUE(until([&] { return here.ready == 1 && there.ready == 1; }));
    a->close(1000 + i, i % 2 == 0);
    ASSERT_TRUE(until([&] { return there.gone == 1; }));
    b->close(2000 + i, false);
  }
  EXPECT_EQ(openDescriptors(), before);
}

}  // namespace
}  // namespace gloo_bypass::verbs
