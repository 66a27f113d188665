// A peer that knows the secrets, is accepted, and then breaks memif's handshake. Its link goes down and says why;
// another link of the same port continues.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/no_more_descriptors.h"
#include "tests/transport/dpdk/port_process.h"
#include "transport/base/wake_event.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/dpdk/memif_link.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::dpdk {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Type = MemifMessageType;

// Plays the other end of a link of `port`.
class HostilePeer {
 public:
  // memif's client has the smaller port id.
  HostilePeer(PacketPort& port, MemifRole role) : port_(port), shape_{} {
    victim_ = decodeMemifAddress(port.localAddress()).value();
    self_ = victim_;
    self_.portId.fill(role == MemifRole::kClient ? 0x00 : 0xff);
    self_.secret.fill(0x5a);
    shape_ = {.bufferBytes = victim_.bufferBytes, .log2Slots = victim_.log2Slots};
    page_ = std::move(WakePage::create()).value();
    FileDescriptor listener;
    if (role == MemifRole::kServer) {
      listener = std::move(listenPacketSocket(pathOf(self_))).value();
    } else {
      EXPECT_EQ(connectPacketSocket(pathOf(victim_), socket_), ConnectResult::kConnected);
      EXPECT_EQ(sendHello(socket_.get(), hello(), page_), PacketIo::kDone);
    }
    link_ = port_.openLink(encodeAddress(self_)).value();
    if (role == MemifRole::kServer) {
      EXPECT_TRUE(waitFor([&] {
        poll();
        socket_ = acceptPacketSocket(listener.get());
        return static_cast<bool>(socket_);
      }));
      EXPECT_EQ(sendHello(socket_.get(), hello(), page_), PacketIo::kDone);
      ::unlink(pathOf(self_).c_str());
    }
    MemifHello ignored;
    WakePage ignoredPage;
    EXPECT_TRUE(waitFor([&] {
      poll();
      return receiveHello(socket_.get(), ignored, ignoredPage) == PacketIo::kDone;
    }));
  }

  void say(std::span<const std::byte> bytes, int descriptor = -1) {
    (void)sendPacket(socket_.get(), bytes, descriptor);
    poll();
  }
  void say(Type type) { say(memifMessage(type)); }
  void hangUp() { socket_.reset(); }

  // Why the port ended the link; "none" if it has not.
  std::string verdict() {
    (void)waitFor([&] {
      poll();
      return !sink_.down.empty();
    });
    if (sink_.down.empty()) return "none";
    EXPECT_EQ(sink_.down.front().first, link_);
    return sink_.down.front().second.message;
  }
  bool linkCarries() {
    const OutgoingDatagram nothing{};
    return waitFor([&] {
      poll();
      return port_.transmit(link_, std::span(&nothing, 1)) == 1;
    });
  }
  const MemifRingShape& shape() const { return shape_; }

 private:
  std::string pathOf(const MemifAddress& address) const {
    return victim_.directory + "/" + toHex(address.portId) + ".sock";
  }
  MemifHello hello() const { return {self_.portId, victim_.secret, 1}; }
  void poll() {
    port_.onTick(monotonicNow());
    (void)port_.receive(sink_, 8);
  }

  PacketPort& port_;
  MemifRingShape shape_;
  MemifAddress victim_, self_;
  WakePage page_;
  FileDescriptor socket_;
  LinkId link_ = 0;
  CollectingSink sink_;
};

class MemifHostile : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = makeDpdkPort(memifTestConfig());
    ASSERT_TRUE(made.ok()) << made.error().message;
    port_ = std::move(made).value();
    bystander_ = std::move(makeDpdkPort(memifTestConfig())).value();
    there_ = port_->openLink(bystander_->localAddress()).value();
    back_ = bystander_->openLink(port_->localAddress()).value();
  }
  void TearDown() override {
    CollectingSink sink, ignored;
    const std::array<std::byte, 8> bytes{};
    const OutgoingDatagram datagram{bytes, {}};
    bool sent = false;
    EXPECT_TRUE(waitFor([&] {
      for (PacketPort* port : {port_.get(), bystander_.get()}) port->onTick(monotonicNow());
      (void)port_->receive(ignored, 8);
      sent = sent || port_->transmit(there_, std::span(&datagram, 1)) == 1;
      (void)bystander_->receive(sink, 8);
      return !sink.datagrams.empty();
    })) << "another link has suffered";
    port_.reset();
    bystander_.reset();
    removeTestDirectory();
  }

  std::unique_ptr<PacketPort> port_, bystander_;
  LinkId there_ = 0, back_ = 0;
};

TEST_F(MemifHostile, ServerThatSaysAnythingButWhatItShould_LinkGoesDown) {
  const std::vector<std::function<void(HostilePeer&)>> faults{
      [](HostilePeer& peer) { peer.say(Type::kConnected); },
      [](HostilePeer& peer) { peer.say(static_cast<Type>(0xffff)); },
      [](HostilePeer& peer) { peer.say(std::array<std::byte, 5>{}); },
      [](HostilePeer& peer) { peer.say(std::array<std::byte, 127>{}); },
      [](HostilePeer& peer) { peer.say(std::array<std::byte, 4000>{}); },
      [](HostilePeer& peer) { peer.say(MemifMessage{}); },
      [](HostilePeer& peer) { peer.say(memifDisconnect("go away")); },
      [](HostilePeer& peer) {
        peer.say(memifHello("x"));
        peer.say(memifHello("x"));
      },
      [](HostilePeer& peer) {  // does not end
        peer.say(memifHello("x"));
        for (int i = 0; i < 2 * kMaxMemifMessages; ++i) peer.say(Type::kAck);
      },
      [](HostilePeer& peer) {
        peer.say(memifHello("x"));
        peer.hangUp();
      }};
  for (std::size_t i = 0; i < faults.size(); ++i) {
    HostilePeer peer(*port_, MemifRole::kServer);
    faults[i](peer);
    EXPECT_THAT(peer.verdict(), HasSubstr("memif link to process")) << "fault " << i;
  }
}

// A client's messages up to its memory.
void introduce(HostilePeer& peer) {
  MemifMessage init = memifMessage(Type::kInit);
  setMemifField(init, memif_field::kInitVersion, kMemifVersion);
  peer.say(init);
}

FileDescriptor file(std::size_t bytes, bool sealed) {
  FileDescriptor made(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
  if (sealed) {
    EXPECT_EQ(::fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  return made;
}

void describe(HostilePeer& peer, const MemifRingShape& shape, int memory) {
  const auto own = MemifMemory::create(shape, MemifPages::kWhenTouched);
  ASSERT_TRUE(own.ok());
  const FileDescriptor events(::eventfd(0, EFD_CLOEXEC));
  const auto [region, toServer, toClient] = own.value()->description();
  introduce(peer);
  peer.say(region, memory < 0 ? own.value()->descriptor() : memory);
  peer.say(toServer, events.get());
  peer.say(toClient, events.get());
  peer.say(Type::kConnect);
}

TEST_F(MemifHostile, ClientThatSaysAnythingButWhatItShould_LinkGoesDown) {
  const std::vector<std::function<void(HostilePeer&)>> faults{
      [](HostilePeer& peer) { peer.say(Type::kConnect); }, [](HostilePeer& peer) { peer.say(Type::kAddRing); },
      [](HostilePeer& peer) { peer.say(std::array<std::byte, 129>{}); },
      [](HostilePeer& peer) {
        introduce(peer);
        peer.say(Type::kAddRegion);
      },
      [](HostilePeer& peer) {
        introduce(peer);
        introduce(peer);
      },
      // Rings other than agreed, and memory that is too short, or could become so.
      [](HostilePeer& peer) { describe(peer, {.bufferBytes = peer.shape().bufferBytes, .log2Slots = 1}, -1); },
      [](HostilePeer& peer) { describe(peer, {.bufferBytes = 2048, .log2Slots = peer.shape().log2Slots}, -1); },
      [](HostilePeer& peer) { describe(peer, peer.shape(), file(4096, true).get()); },
      [](HostilePeer& peer) { describe(peer, peer.shape(), file(16 << 20, false).get()); },
      [](HostilePeer& peer) { describe(peer, peer.shape(), STDIN_FILENO); },
      [](HostilePeer& peer) {
        const FileDescriptor readOnly = file(16 << 20, true);
        EXPECT_EQ(::fcntl(readOnly.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
        describe(peer, peer.shape(), readOnly.get());
      },
      [](HostilePeer& peer) {
        introduce(peer);
        for (int i = 0; i < 2 * kMaxMemifMessages; ++i) peer.say(Type::kAck);
      },
      [](HostilePeer& peer) {
        introduce(peer);
        peer.hangUp();
      }};
  for (std::size_t i = 0; i < faults.size(); ++i) {
    HostilePeer peer(*port_, MemifRole::kClient);
    faults[i](peer);
    const std::string verdict = peer.verdict();
    EXPECT_THAT(verdict, HasSubstr("memif link to process")) << "fault " << i;
    EXPECT_THAT(verdict, Not(HasSubstr("ulimit"))) << "fault " << i << " is no want of memory";
  }
}

TEST_F(MemifHostile, DirectoryWithControlCharacters_IsShownEscaped) {
  MemifAddress peer = decodeMemifAddress(port_->localAddress()).value();
  peer.directoryId.fill(1);
  peer.directory = "/\033[2J\r\nrank 0: all is well";
  const auto refused = port_->openLink(encodeAddress(peer));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("'/\\x1b[2J\\x0d\\x0arank 0"));
  EXPECT_THAT(refused.error().message, Not(HasSubstr("\033")));
}

// A connection with unread bytes, which make close() block.
struct LingeringSocket {
  explicit LingeringSocket(std::chrono::seconds lingers) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    end.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(end.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    reader.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> bytes(1 << 20);
    while (::send(end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    const linger on{1, static_cast<int>(lingers.count())};
    EXPECT_EQ(::setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &on, sizeof(on)), 0);
  }
  FileDescriptor end, reader;
};

TEST(PacketSocket, SocketThatLingersComesAsDescriptor_ClosingItDoesNotWait) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const FileDescriptor here(ends[0]), there(ends[1]);
  constexpr std::array<std::size_t, 4> kCopies{1, 2, 3, 253};  // as one message may have
  for (const std::size_t copies : kCopies) {
    const std::byte word{1};
    iovec vector{const_cast<std::byte*>(&word), 1};
    std::vector<char> control(CMSG_SPACE(copies * sizeof(int)));
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {.cmsg_len = CMSG_LEN(copies * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    {
      LingeringSocket last(std::chrono::seconds(6));
      std::vector<int> descriptors(copies, STDIN_FILENO);
      descriptors.back() = last.end.get();
      std::memcpy(CMSG_DATA(header), descriptors.data(), copies * sizeof(int));
      ASSERT_EQ(::sendmsg(here.get(), &message, 0), 1);
      last.end.reset();
      const TimePoint before = monotonicNow();
      {
        std::array<std::byte, 8> packet;
        std::size_t length = 0;
        FileDescriptor first, second;
        EXPECT_EQ(receivePacket(there.get(), packet, length, first, &second),
                  copies > 2 ? PacketIo::kClosed : PacketIo::kDone);
      }
      EXPECT_LT(monotonicNow() - before, Duration(std::chrono::seconds(3))) << copies << " descriptors";
    }
  }
}

TEST(MemifHello, DescriptorThatIsNoDoorbell_IsRefused) {
  std::array<int, 2> pipe{}, stream{}, ends{};
  ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK | O_CLOEXEC), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream.data()), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const FileDescriptor readEnd(pipe[0]), otherEnd(stream[0]), here(ends[0]), there(ends[1]);
  const auto isTaken = [&](FileDescriptor doorbell) {
    WakePage sent = std::move(WakePage::create()).value(), received;
    sent.setDoorbell(std::move(doorbell));
    EXPECT_EQ(sendHello(here.get(), {}, sent), PacketIo::kDone);
    MemifHello hello;
    return receiveHello(there.get(), hello, received) == PacketIo::kDone && received.doorbell() >= 0;
  };
  EXPECT_FALSE(isTaken(FileDescriptor(pipe[1])));
  EXPECT_FALSE(isTaken(FileDescriptor(stream[1])));
  EXPECT_FALSE(isTaken(FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))));
  EXPECT_FALSE(isTaken(FileDescriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))));
  const Doorbell bell;
  EXPECT_TRUE(isTaken(FileDescriptor(::fcntl(bell.rungAt(), F_DUPFD_CLOEXEC, 0))));
}

// A peer shares the open file, and may do anything with it: clear O_NONBLOCK, fill it, empty it, shut it down.
TEST(WakePage, PeerTakesTheDoorbellOver_NeitherEndWaitsForIt) {
  WakePage owner = std::move(WakePage::create()).value();
  WakeEvent sleep;
  ASSERT_TRUE(sleep.made().ok());
  const auto shared = [&] { return FileDescriptor(::fcntl(sleep.doorbell(), F_DUPFD_CLOEXEC, 0)); };
  const FileDescriptor peers = shared();
  owner.setDoorbell(shared());
  const auto takesNoTime = [](const std::function<void()>& what) {
    const TimePoint before = monotonicNow();
    what();
    return monotonicNow() - before < Duration(std::chrono::seconds(5));
  };
  // A blocking call would never return.
  const auto everything = [&] {
    for (int i = 0; i < 100; ++i) {
      sleep.arm();
      owner.arm(WakePage::Sleep::kElsewhere);
      owner.wakeIfSleeping();
      sleep.wake();
    }
    for (int i = 0; i < 100; ++i) sleep.block({}, std::chrono::milliseconds(1));
  };
  std::atomic<bool> ended = false;
  std::thread victim([&] {
    ASSERT_EQ(::fcntl(peers.get(), F_SETFL, 0), 0);
    while (::send(peers.get(), "x", 1, MSG_DONTWAIT) == 1) continue;
    EXPECT_TRUE(takesNoTime(everything));
    std::array<char, 8> bytes;
    while (::recv(peers.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    EXPECT_TRUE(takesNoTime(everything));
    EXPECT_EQ(::shutdown(peers.get(), SHUT_RDWR), 0);
    EXPECT_TRUE(takesNoTime(everything));
    ended = true;
  });
  const bool inTime = waitFor([&] { return ended.load(); });
  if (!inTime) ::_exit(1);  // joining would block
  victim.join();
}

TEST(MemifExhausted, DescriptorsEndWhileThePortIsMade_ErrorNamesTheLimit) {
  {
    ASSERT_TRUE(makeDpdkPort(memifTestConfig()).ok());
  }  // what a process needs once
  int refused = 0;
  for (rlim_t more = 0; more < 12; ++more) {
    const test::NoMoreDescriptors few(more);
    const auto made = makeDpdkPort(memifTestConfig());
    if (made.ok()) break;
    ++refused;
    EXPECT_THAT(made.error().message, HasSubstr("RLIMIT_NOFILE")) << more;
  }
  EXPECT_GE(refused, 5) << "page, epoll, two events, listeners";
  removeTestDirectory();
}

TEST_F(MemifHostile, ClientThatDoesItsPart_LinkIsUpUntilItSaysMore) {
  HostilePeer peer(*port_, MemifRole::kClient);
  describe(peer, peer.shape(), -1);
  EXPECT_TRUE(peer.linkCarries());
  peer.say(Type::kAck);
  EXPECT_THAT(peer.verdict(), HasSubstr("memif link to process"));
}

// Silent connections ----------------------------------------------------------------------------

FileDescriptor connectTo(const PacketPort& port) {
  const MemifAddress address = decodeMemifAddress(port.localAddress()).value();
  FileDescriptor fd;
  (void)connectPacketSocket(address.directory + "/" + toHex(address.portId) + ".sock", fd);
  return fd;
}

bool isClosed(const FileDescriptor& fd) {
  std::array<std::byte, 256> ignored;
  std::size_t length = 0;
  FileDescriptor attached;
  return receivePacket(fd.get(), ignored, length, attached) == PacketIo::kClosed;
}

TEST(MemifSilence, NobodySaysHello_ConnectionEndsAfterTenSeconds) {
  const auto port = openPort(), late = openPort();
  const TimePoint begin = monotonicNow();
  CollectingSink sink;
  const auto tick = [&](Duration after) {
    port->onTick(begin + after);
    (void)port->receive(sink, 8);
  };
  const FileDescriptor silent = connectTo(*port);
  ASSERT_TRUE(silent);
  // It sends its hello, and is answered when the port opens the link: hours later.
  const bool connects =
      decodeMemifAddress(late->localAddress()).value().portId < decodeMemifAddress(port->localAddress()).value().portId;
  const auto fromLate = late->openLink(port->localAddress());
  ASSERT_TRUE(fromLate.ok());
  const auto tickLate = [&] {
    late->onTick(monotonicNow());
    (void)late->receive(sink, 8);
  };
  EXPECT_TRUE(waitFor([&] {
    tickLate();
    tick(Duration(0));
    return port->longestSleep() <= Duration(std::chrono::milliseconds(50));
  })) << "the silent one was not noticed";
  tick(std::chrono::seconds(9));
  EXPECT_FALSE(isClosed(silent));
  tick(std::chrono::seconds(11));
  EXPECT_TRUE(isClosed(silent));
  EXPECT_EQ(port->counters().droppedForeign, 1U);
  EXPECT_EQ(port->longestSleep(), Duration::max()) << "whoever has said hello needs no ticks";
  tick(std::chrono::hours(2));
  const auto toLate = port->openLink(late->localAddress());
  ASSERT_TRUE(toLate.ok());
  const OutgoingDatagram nothing{};
  EXPECT_TRUE(waitFor([&] {
    tickLate();
    tick(std::chrono::hours(2));
    return port->transmit(toLate.value(), std::span(&nothing, 1)) == 1;
  })) << (connects ? "the late one connects" : "the port connects");
}

// The port that closes it is its last owner.
TEST(MemifSilence, HelloBringsASocketThatLingers_PortDoesNotWaitForIt) {
  const auto port = openPort();
  const FileDescriptor stranger = connectTo(*port);
  LingeringSocket page(std::chrono::seconds(6));
  const std::array<std::byte, 40> hello{std::byte{0x47}, std::byte{0x42}, std::byte{0x68}, std::byte{0x6c}};
  ASSERT_EQ(sendPacket(stranger.get(), hello, page.end.get()), PacketIo::kDone);
  page.end.reset();
  CollectingSink sink;
  EXPECT_TRUE(waitFor([&] {
    const TimePoint before = monotonicNow();
    port->onTick(before);
    (void)port->receive(sink, 8);
    EXPECT_LT(monotonicNow() - before, Duration(std::chrono::seconds(3)));
    return isClosed(stranger);
  }));
}

// They were slow, and send their hellos when the next one connects.
TEST(MemifSilence, SilentOnesSayHelloAsOneMoreConnects_NoneIsClosed) {
  const auto port = openPort();
  const MemifAddress address = decodeMemifAddress(port->localAddress()).value();
  const TimePoint begin = monotonicNow();
  CollectingSink sink;
  const auto tick = [&](Duration after) {
    port->onTick(begin + after);
    (void)port->receive(sink, 8);
  };
  std::vector<FileDescriptor> connections;
  while (connections.size() < 16) connections.push_back(connectTo(*port));
  EXPECT_TRUE(waitFor([&] {
    tick(Duration(0));
    return port->longestSleep() <= Duration(std::chrono::milliseconds(50));
  })) << "none was noticed";
  tick(std::chrono::milliseconds(300));
  EXPECT_EQ(std::count_if(connections.begin(), connections.end(), isClosed), 0) << "nobody else wants in";
  const WakePage page = std::move(WakePage::create()).value();
  const MemifHello hello{.senderId = {}, .targetSecret = address.secret};
  for (const FileDescriptor& fd : connections) ASSERT_EQ(sendHello(fd.get(), hello, page), PacketIo::kDone);
  connections.push_back(connectTo(*port));
  tick(std::chrono::milliseconds(600));
  EXPECT_EQ(std::count_if(connections.begin(), connections.end(), isClosed), 0);
  EXPECT_EQ(port->counters().droppedForeign, 0U);
}

// The port with the smaller id connects; ids are random.
std::unique_ptr<PacketPort> openPortThat(bool connects) {
  std::unique_ptr<PacketPort> port;
  EXPECT_TRUE(waitFor([&] {
    port = openPort();
    return (decodeMemifAddress(port->localAddress()).value().portId[0] < 0x80) == connects;
  }));
  return port;
}

// As many as a process may have descriptors, and more. A rank that connects after them is accepted.
TEST(MemifSilence, HundredSilentConnectionsAndFewDescriptors_RankGoesOnAndAnotherConnects) {
  testDirectory();
  runProcesses({[](Partner& partner) {
                 const rlimit few{64, 64};
                 ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
                 const auto port = openPortThat(/*connects=*/false);
                 partner.send(port->localAddress());
                 const auto address = partner.receive();
                 CollectingSink sink;
                 const auto openLater = [&] { return FileDescriptor(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)); };
                 LinkId link = 0;
                 for (const TimePoint end = monotonicNow() + Duration(std::chrono::seconds(3)); monotonicNow() < end;) {
                   port->armWakeup();
                   port->onTick(monotonicNow());
                   if (port->receive(sink, 8) == 0) port->block(std::chrono::milliseconds(100));
                   port->disarmWakeup();
                   ASSERT_TRUE(openLater()) << "the rank has no descriptor left for itself";
                 }
                 link = port->openLink(address).value();
                 const OutgoingDatagram nothing{};
                 EXPECT_TRUE(waitFor([&] {
                   port->onTick(monotonicNow());
                   (void)port->receive(sink, 8);
                   return port->transmit(link, std::span(&nothing, 1)) == 1;
                 }));
                 port->wakePeers();
                 EXPECT_GE(port->counters().droppedForeign, 36U);
                 partner.meet();
               }},
               {[](Partner& partner) {
                 const auto port = openPortThat(/*connects=*/true);
                 partner.send(port->localAddress());
                 const auto address = partner.receive();
                 const MemifAddress victim = decodeMemifAddress(address).value();
                 std::vector<FileDescriptor> silent;
                 EXPECT_TRUE(waitFor([&] {
                   FileDescriptor fd;
                   if (connectPacketSocket(victim.directory + "/" + toHex(victim.portId) + ".sock", fd) ==
                       ConnectResult::kConnected) {
                     silent.push_back(std::move(fd));
                   }
                   return silent.size() == 100;
                 }));
                 const auto link = port->openLink(address);
                 ASSERT_TRUE(link.ok());
                 CollectingSink sink;
                 EXPECT_TRUE(waitFor([&] {
                   port->onTick(monotonicNow());
                   (void)port->receive(sink, 8);
                   return !sink.datagrams.empty() || !sink.down.empty();
                 }));
                 EXPECT_TRUE(sink.down.empty()) << sink.down.front().second.message;
                 partner.meet();
               }});
  removeTestDirectory();
}

// Leftovers of dead processes are removed, and nothing else: an owner that cannot be reached (here, since its socket is
// of another kind) may live.
TEST_F(MemifHostile, DirectoryIsSwept_WhoCannotBeReachedStays) {
  const TransportConfig config = memifTestConfig();
  ASSERT_TRUE(prepareMemifDirectory(config).ok());
  const std::string here = toHex(machineId()).substr(0, 8), elsewhere = here == "00000000" ? "00000001" : "00000000";
  const auto listenAs = [&](char digit, int type, const std::string& machine) {
    const std::string path = config.memifDirectory + "/" + std::string(24, digit) + machine + ".sock";
    FileDescriptor fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd.get(), 1), 0);
    return std::pair(path, std::move(fd));
  };
  const std::string dead = listenAs('a', SOCK_SEQPACKET, here).first;
  // As hosts see each other's that share a folder: it refuses, whoever listens there.
  const std::string ofAnotherMachine = listenAs('d', SOCK_SEQPACKET, elsewhere).first;
  const auto alive = listenAs('b', SOCK_SEQPACKET, here), another = listenAs('c', SOCK_STREAM, here);
  ASSERT_TRUE(prepareMemifDirectory(config).ok());
  EXPECT_FALSE(std::filesystem::exists(dead));
  EXPECT_TRUE(std::filesystem::exists(ofAnotherMachine));
  EXPECT_TRUE(std::filesystem::exists(alive.first));
  EXPECT_TRUE(std::filesystem::exists(another.first));
}

}  // namespace
}  // namespace gloo_bypass::dpdk
