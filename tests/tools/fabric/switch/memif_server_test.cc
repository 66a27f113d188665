// The fabric's memif port against correct, faulty and dying clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/tools/fabric/switch/memif_client.h"
#include "tests/tools/fabric/switch/memory_port.h"
#include "tools/fabric/switch/memif_server_port.h"

namespace gloo_bypass::fabric {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kLongestFrame = 1514;

class Collector final : public FrameSink {
 public:
  void onFrame(std::span<const std::byte> frame) override { frames.emplace_back(frame.begin(), frame.end()); }
  std::vector<Bytes> frames;
};

Bytes frameOf(std::size_t length) {
  Bytes frame(length);
  for (std::size_t i = 0; i < length; ++i) frame[i] = static_cast<std::byte>(i * 3 + length);
  return frame;
}

class MemifServer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = MemifServerPort::create(path_, kLongestFrame, epoll_.get());
    ASSERT_TRUE(made.ok()) << made.error().message;
    port_ = std::move(made).value();
  }
  // A client that is accepted and has described its rings.
  void attach(MemifClient& client) {
    ASSERT_TRUE(client.connect(path_));
    client.describe();
    port_->service();
    port_->service();
    ASSERT_EQ(client.hearLast(), kMemifConnected);
    ASSERT_TRUE(port_->connected());
    client.start();
  }
  std::string refusalOf(const MemifClient::Faults& faults, std::size_t bufferBytes = 2048) {
    MemifClient client(bufferBytes);
    EXPECT_TRUE(client.connect(path_));
    client.describe(faults, [this] { port_->service(); });
    std::string reason;
    EXPECT_EQ(client.hearLast(&reason), kMemifDisconnect);
    EXPECT_FALSE(port_->connected());
    return reason;
  }
  bool somethingReady() const {
    pollfd polled{epoll_.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path + "/port.sock";
  const FileDescriptor epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::unique_ptr<MemifServerPort> port_;
};

TEST_F(MemifServer, ClientConnects_FramesCrossBothWays) {
  MemifClient client;
  attach(client);
  Collector collector;
  for (const std::size_t length : {14U, 60U, 1514U}) client.sendFrame(frameOf(length));
  EXPECT_EQ(port_->receive(collector, 64), 3U);
  ASSERT_EQ(collector.frames.size(), 3U);
  EXPECT_EQ(collector.frames[1], frameOf(60));
  EXPECT_EQ(collector.frames[2], frameOf(1514));

  FrameArena arena(4u << 20);
  const std::array<Frame*, 2> frames{arena.copy(frameOf(100)), arena.copy(frameOf(1514))};
  EXPECT_EQ(port_->transmit(frames), 2U);
  ASSERT_EQ(client.fromServer().waiting(), 2U);
  EXPECT_TRUE(std::ranges::equal(client.fromServer().frame(1), frameOf(1514)));
  EXPECT_EQ(port_->counters().bytesOut, 1614U);
}

TEST_F(MemifServer, RingFull_TransmitTakesWhatFits) {
  MemifClient client(2048, 4);
  attach(client);
  FrameArena arena(4u << 20);
  std::vector<Frame*> frames(20, arena.copy(frameOf(100)));
  EXPECT_EQ(port_->transmit(frames), 16U);
  EXPECT_EQ(port_->transmit(frames), 0U);
  client.fromServer().release(5);
  EXPECT_EQ(port_->transmit(frames), 5U);
}

TEST_F(MemifServer, FramesTooShortOrTooLong_AreCountedAndDropped) {
  MemifClient client;
  attach(client);
  for (const std::size_t length : {0U, 13U, 1515U, 2048U, 100U}) client.sendFrame(frameOf(length));
  Collector collector;
  EXPECT_EQ(port_->receive(collector, 64), 5U);
  EXPECT_EQ(collector.frames.size(), 1U);
  EXPECT_EQ(port_->counters().malformed, 2U);
  EXPECT_EQ(port_->counters().tooLong, 2U);
}

TEST_F(MemifServer, DescriptorBeyondItsBuffer_IsMalformed) {
  MemifClient client;
  attach(client);
  client.sendFrame(frameOf(100));
  client.setLength(0, 0xffffffffU);
  Collector collector;
  EXPECT_EQ(port_->receive(collector, 64), 1U);
  EXPECT_TRUE(collector.frames.empty());
  EXPECT_EQ(port_->counters().malformed, 1U);
}

TEST_F(MemifServer, CountersOfRingImpossible_ClientIsDisconnected) {
  MemifClient client;
  attach(client);
  client.breakRing();
  Collector collector;
  EXPECT_EQ(port_->receive(collector, 64), 0U);
  EXPECT_FALSE(port_->connected());
  std::string reason;
  EXPECT_EQ(client.hearLast(&reason), kMemifDisconnect);
  EXPECT_EQ(reason, "the ring is broken");
}

TEST_F(MemifServer, ClientHangsUp_ItsFramesAreStillTakenAndAnotherMayCome) {
  {
    MemifClient client;
    attach(client);
    client.sendFrame(frameOf(100));
    client.sendFrame(frameOf(101));
    client.hangUp();
  }
  port_->service();
  Collector collector;
  EXPECT_EQ(port_->receive(collector, 1), 1U);
  EXPECT_TRUE(port_->connected());
  EXPECT_EQ(port_->receive(collector, 64), 1U);
  EXPECT_FALSE(port_->connected());
  EXPECT_EQ(collector.frames.size(), 2U);
  EXPECT_FALSE(somethingReady());
  MemifClient successor;
  attach(successor);
  successor.sendFrame(frameOf(102));
  EXPECT_EQ(port_->receive(collector, 64), 1U);
}

TEST_F(MemifServer, SecondClient_IsTurnedAwayAndFirstGoesOn) {
  MemifClient first, second;
  attach(first);
  ASSERT_TRUE(second.connect(path_));
  port_->service();
  std::string reason;
  EXPECT_EQ(second.hearLast(&reason), kMemifDisconnect);
  EXPECT_EQ(reason, "another client is connected to this socket");
  first.sendFrame(frameOf(100));
  Collector collector;
  EXPECT_EQ(port_->receive(collector, 64), 1U);
}

TEST_F(MemifServer, FaultsOfHandshake_AreRefusedWithTheReason) {
  EXPECT_THAT(refusalOf({.version = 0x0100}), HasSubstr("version 2.0"));
  EXPECT_THAT(refusalOf({.mode = 1}), HasSubstr("Ethernet"));
  EXPECT_THAT(refusalOf({.sealed = false}), HasSubstr("could shrink"));
  EXPECT_THAT(refusalOf({.withMemory = false}), HasSubstr("without its memory"));
  EXPECT_THAT(refusalOf({.extraBytes = 7}), HasSubstr("does not hold two rings"));
  EXPECT_THAT(refusalOf({.extraBytes = std::size_t{1} << 62}), HasSubstr("does not hold two rings"));
  EXPECT_THAT(refusalOf({.ringOffset = 0xfffffff0U}), HasSubstr("not in its memory"));
  EXPECT_THAT(refusalOf({.log2Slots = 60}), HasSubstr("too large"));
  EXPECT_THAT(refusalOf({}, 1024), HasSubstr("bsize=1024 is less than a frame of 1514 bytes"));
  // None of them has caused harm.
  MemifClient client;
  attach(client);
}

TEST_F(MemifServer, MessagesWithoutOrder_AreRefused) {
  for (const std::uint16_t type : {kMemifConnect, kMemifAddRing, kMemifAddRegion, static_cast<MemifType>(99)}) {
    MemifClient client;
    ASSERT_TRUE(client.connect(path_));
    client.send(MemifClient::messageOf(type));
    port_->service();
    EXPECT_EQ(client.hearLast(), kMemifDisconnect) << type;
  }
}

TEST_F(MemifServer, WantedEvents_WakeASleeperAndOnlyThen) {
  MemifClient client;
  attach(client);
  EXPECT_FALSE(client.eventsWanted());
  EXPECT_FALSE(somethingReady());
  port_->wakeOnFrames(true);
  EXPECT_TRUE(client.eventsWanted());
  client.signalEvent();
  EXPECT_TRUE(somethingReady());
  port_->wakeOnFrames(false);
  EXPECT_FALSE(client.eventsWanted());
}

TEST_F(MemifServer, PortGoes_SocketIsRemovedAndClientIsTold) {
  MemifClient client;
  attach(client);
  port_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(client.hearLast(), kMemifDisconnect);
}

TEST_F(MemifServer, SocketOfAnotherFabric_IsRefusedAndLeftAlone) {
  const auto second = MemifServerPort::create(path_, kLongestFrame, epoll_.get());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("another process listens there"));
  MemifClient client;
  EXPECT_TRUE(client.connect(path_));
}

TEST_F(MemifServer, SocketOfADeadProcess_IsReplaced) {
  const std::string path = folder_.path + "/stale.sock";
  {
    FileDescriptor listener = std::move(listenPacketSocket(path)).value();
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_TRUE(MemifServerPort::create(path, kLongestFrame, epoll_.get()).ok());
}

TEST_F(MemifServer, PathTakenOrUnusable_SaysWhy) {
  const std::string path = folder_.path + "/file";
  std::ofstream(path) << "precious";
  const auto taken = MemifServerPort::create(path, kLongestFrame, epoll_.get());
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message, HasSubstr("no socket"));
  EXPECT_EQ(std::filesystem::file_size(path), 8U);
  const auto missing = MemifServerPort::create(folder_.path + "/none/port.sock", kLongestFrame, epoll_.get());
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace gloo_bypass::fabric
