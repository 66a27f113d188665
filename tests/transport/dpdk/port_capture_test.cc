// The contents of a port's capture, read back by libpcap, against the port's own counters.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "tests/transport/dpdk/port_process.h"
#include "tools/capture/capture_file.h"
#include "transport/base/file_descriptor.h"
#include "transport/dpdk/dpdk_port.h"
#include "transport/dpdk/frame.h"
#include "transport/progress/progress_engine.h"
#include "transport/wire/step_marker.h"

namespace gloo_bypass::dpdk {
namespace {

class PortCapture : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(testDirectory());
    std::filesystem::permissions(testDirectory(), std::filesystem::perms::owner_all);  // as the port wants it
  }
  void TearDown() override { removeTestDirectory(); }
  static std::string pathOf(const std::string& name) { return testDirectory() + "/" + name + ".pcapng"; }
  static TransportConfig capturing(const std::string& name) {
    TransportConfig config = memifTestConfig();
    config.capture = pathOf(name);
    return config;
  }
};

struct Contents {
  std::uint64_t frames = 0, bytes = 0, arpFrames = 0, markers = 0;
  std::size_t longestKept = 0;
  bool whole = true, inOrder = true;
};

Contents contentsOf(const std::string& path) {
  Contents contents;
  auto file = capture::CaptureFile::open(path, "");
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  if (!file.ok()) return contents;
  capture::CaptureTime before{};
  while (const auto frame = file.value().next()) {
    contents.inOrder &= frame->time >= before;
    before = frame->time;
    contents.longestKept = std::max(contents.longestKept, frame->bytes.size());
    if (readBe16(&frame->bytes[12]) == kEtherTypeArp) {
      ++contents.arpFrames;
    } else if (readBe16(&frame->bytes[kEthernetHeaderBytes + kIpv4HeaderBytes + 2]) == wire::kStepMarkerPort) {
      ++contents.markers;
    } else {
      ++contents.frames;
      contents.bytes += frame->originalLength;
    }
  }
  contents.whole = !file.value().fault().has_value();
  return contents;
}

void sendOne(PacketPort& port, LinkId link, std::size_t bytes) {
  static const std::vector<std::byte> payload(60'000, std::byte{7});
  const OutgoingDatagram datagram{std::span(payload).first(40), std::span(payload).first(bytes - 40)};
  CollectingSink sink;
  EXPECT_TRUE(waitFor([&] {
    port.onTick(monotonicNow());
    (void)port.receive(sink, 64);
    return port.transmit(link, std::span(&datagram, 1)) == 1;
  }));
  port.wakePeers();
}

// Sends `count` datagrams and receives as many.
void exchange(PacketPort& port, LinkId link, std::size_t count, std::size_t bytes) {
  const std::uint64_t wanted = port.counters().packetsReceived + count;
  for (std::size_t i = 0; i < count; ++i) sendOne(port, link, bytes - i % 100);
  CollectingSink sink;
  EXPECT_TRUE(waitFor([&] {
    port.onTick(monotonicNow());
    (void)port.receive(sink, 64);
    return port.counters().packetsReceived == wanted;
  }));
}

struct Captured {
  PortCounters counters;
  Contents contents;
};

// Exchanges datagrams with the partner's port and ends; then compares the capture at `path` with the port's counters.
Captured exchangeAndEnd(std::unique_ptr<PacketPort> port, Partner& partner, const std::string& path, std::size_t count,
                        std::size_t bytes) {
  const LinkId link = linkPorts(*port, partner);
  exchange(*port, link, count, bytes);
  partner.meet();
  const PortCounters counters = port->counters();
  port.reset();
  Captured captured{counters, contentsOf(path)};
  EXPECT_TRUE(captured.contents.whole && captured.contents.inOrder);
  EXPECT_EQ(captured.contents.frames, counters.packetsSent + counters.packetsReceived);
  EXPECT_EQ(captured.contents.bytes, counters.bytesSent + counters.bytesReceived);
  return captured;
}

TEST_F(PortCapture, MemifBothWays_FramesAndBytesAreThoseOfTheCounters) {
  const auto end = [](const std::string& name) {
    return ProcessEnd{[name](Partner& partner) {
      const auto [counters, contents] = exchangeAndEnd(openPort(capturing(name)), partner, pathOf(name), 2'000, 50'000);
      EXPECT_EQ(counters.captureFrames, contents.frames);
      EXPECT_EQ(counters.captureBytes, contents.bytes);
      EXPECT_EQ(counters.captureLost, 0u);
      EXPECT_EQ(contents.longestKept, 256u);
    }};
  };
  runProcesses(end("a"), end("b"));
}

// A virtual device stands for a NIC: DPDK carries the frames, and the port does ARP.
TEST_F(PortCapture, PciBothWays_ArpIsThereToo) {
  const auto end = [](const std::string& name, const std::string& role, const std::string& address) {
    return ProcessEnd{[=](Partner& partner) {
      TransportConfig config = capturing(name);
      config.link = LinkMode::kPci;
      config.pciAddress =
          "net_memif0,role=" + role + ",id=0,socket-abstract=no,socket=" + testDirectory() + "/wire.sock";
      config.ipv4 = address + "/24";
      config.mtu = 1500;
      config.captureSnapLength = 65535;
      // The client's driver connects when it is made.
      if (role == "client") partner.meet();
      auto port = openPort(config);
      if (role == "server") partner.meet();
      const auto [counters, contents] = exchangeAndEnd(std::move(port), partner, pathOf(name), 300, 1'400);
      EXPECT_EQ(counters.captureFrames, contents.frames + contents.arpFrames);
      EXPECT_GE(contents.arpFrames, 1u);
      EXPECT_EQ(contents.longestKept, 1'400 + kFrameHeaderBytes);
    }};
  };
  runProcesses(end("a", "server", "10.9.0.1"), end("b", "client", "10.9.0.2"));
}

TEST_F(PortCapture, PortToItself_IsThereOnceWithHeaders) {
  runProcess([] {
    auto port = openPort(capturing("a"));
    const auto link = port->openLink(port->localAddress());
    ASSERT_TRUE(link.ok());
    exchange(*port, link.value(), 10, 1'000);
    const PortCounters counters = port->counters();
    port.reset();
    const Contents contents = contentsOf(pathOf("a"));
    EXPECT_EQ(contents.frames, 10u);
    EXPECT_EQ(contents.bytes, counters.bytesSent);
  });
}

// An address for this process alone: another program may have the port at 127.0.0.1.
std::string markersAddress() {
  return "127.9." + std::to_string(::getpid() / 250 % 250) + "." + std::to_string(::getpid() % 250 + 1);
}

void sendMarker(int step) {
  const FileDescriptor sender(::socket(AF_INET, SOCK_DGRAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  ASSERT_EQ(::inet_pton(AF_INET, markersAddress().c_str(), &to.sin_addr), 1);
  to.sin_port = htons(wire::kStepMarkerPort);
  const std::string text = wire::stepMarkerText({.step = static_cast<std::uint64_t>(step), .last = false});
  ASSERT_GT(::sendto(sender.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
}

TEST_F(PortCapture, MarkersOfRankZero_PrecedeTheFramesThatFollow) {
  for (const std::string rank : {"0", "1"}) {
    runProcess([&rank] {
      TransportConfig config = capturing("rank" + rank);
      config.rank = rank;
      config.captureMarkers = markersAddress();
      auto port = openPort(config);
      const auto link = port->openLink(port->localAddress());
      ASSERT_TRUE(link.ok());
      for (int i = 0; i < 3; ++i) {
        sendMarker(i);
        exchange(*port, link.value(), 1, 100);
      }
      port.reset();
      const Contents contents = contentsOf(pathOf("rank" + rank));
      EXPECT_EQ(contents.markers, rank == "0" ? 3u : 0u);
      EXPECT_EQ(contents.frames, 3u);
      EXPECT_TRUE(contents.inOrder);
    });
  }
}

// Whether a datagram gets its time of arrival rather than the time of reading.
bool kernelStampsArrivals() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM, 0));
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  sockaddr_in self{};
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof self;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&self), sizeof self) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&self), &length) != 0 ||
      ::sendto(socket.get(), "", 1, 0, reinterpret_cast<const sockaddr*>(&self), sizeof self) != 1) {
    return false;
  }
  const auto sent = std::chrono::system_clock::now();
  while (std::chrono::system_clock::now() == sent) {
  }
  char byte;
  alignas(cmsghdr) char control[128];
  iovec place{&byte, 1};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  timespec time{};
  if (::recvmsg(socket.get(), &message, 0) != 1 || CMSG_FIRSTHDR(&message) == nullptr) return false;
  std::memcpy(&time, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec) <= sent.time_since_epoch();
}

TEST_F(PortCapture, MarkerThatWaits_HasTheTimeAtWhichItCame) {
  runProcess([] {
    TransportConfig config = capturing("a");
    config.captureMarkers = markersAddress();
    auto port = openPort(config);
    // The kernel starts to do so some time after a first socket has requested it.
    ASSERT_TRUE(waitFor(kernelStampsArrivals));
    const auto link = port->openLink(port->localAddress());
    ASSERT_TRUE(link.ok());
    exchange(*port, link.value(), 1, 100);
    sendMarker(0);
    const auto sent = std::chrono::system_clock::now().time_since_epoch();
    constexpr std::chrono::milliseconds kIdle{50};
    EXPECT_TRUE(waitFor([&] { return std::chrono::system_clock::now().time_since_epoch() > sent + kIdle; }));
    exchange(*port, link.value(), 1, 100);
    port.reset();
    auto file = capture::CaptureFile::open(pathOf("a"), "");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().next().has_value());
    const auto marker = file.value().next();
    ASSERT_TRUE(marker.has_value());
    const capture::CaptureTime markerTime = marker->time;
    EXPECT_LE(markerTime, sent);
    const auto later = file.value().next();
    ASSERT_TRUE(later.has_value());
    EXPECT_GE(later->time, markerTime + kIdle / 2);
  });
}

TEST_F(PortCapture, FileThatCannotBeMade_OneLineThatNamesTheSettingAndNoPort) {
  std::ofstream(pathOf("there")) << "kept";
  for (const std::string name : {"there", "none/a"}) {
    runProcess([&name] {
      const auto port = makeDpdkPort(capturing(name));
      ASSERT_FALSE(port.ok());
      EXPECT_NE(port.error().message.find("GLOO_BYPASS_CAPTURE='" + pathOf(name)), std::string::npos)
          << port.error().message;
      EXPECT_EQ(port.error().message.find('\n'), std::string::npos);
    });
  }
  std::string kept;
  std::ifstream(pathOf("there")) >> kept;
  EXPECT_EQ(kept, "kept");
  runProcess([] {
    TransportConfig config = memifTestConfig();
    config.captureMarkers = markersAddress();
    const auto port = makeDpdkPort(config);
    ASSERT_FALSE(port.ok());
    EXPECT_NE(port.error().message.find("GLOO_BYPASS_CAPTURE is not set"), std::string::npos);
  });
}

TEST_F(PortCapture, DiskThatFills_IsSaidOnceAndThePortGoesOn) {
  runProcess([] {
    (void)::signal(SIGXFSZ, SIG_IGN);
    const std::string said = pathOf("a") + ".stderr";
    ASSERT_NE(std::freopen(said.c_str(), "w", stderr), nullptr);
    TransportConfig config = capturing("a");
    config.captureSnapLength = 65535;
    auto port = openPort(config);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 100'000;  // from now on: memory links are files too
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto link = port->openLink(port->localAddress());
    ASSERT_TRUE(link.ok());
    EXPECT_TRUE(waitFor([&] {
      exchange(*port, link.value(), 20, 40'000);
      return port->counters().captureLost > 0;
    }));
    exchange(*port, link.value(), 20, 40'000);
    port->finishCapture();
    const PortCounters counters = port->counters();
    EXPECT_EQ(counters.packetsReceived, counters.packetsSent);
    port.reset();
    std::fflush(stderr);
    const Contents contents = contentsOf(pathOf("a"));
    EXPECT_TRUE(contents.whole);
    EXPECT_EQ(contents.frames, counters.captureFrames);
    std::string line, text;
    int early = 0;
    for (std::ifstream file(said); std::getline(file, line); text += line + "\n")
      early += line.find("has ended early") != std::string::npos;
    EXPECT_EQ(early, 1) << text;
    EXPECT_NE(text.find(pathOf("a")), std::string::npos) << text;
  });
}

TEST_F(PortCapture, FinishedWhileThePortLives_FileIsWholeAndLaterFramesAreNotCounted) {
  runProcess([] {
    auto port = openPort(capturing("a"));
    const auto link = port->openLink(port->localAddress());
    ASSERT_TRUE(link.ok());
    exchange(*port, link.value(), 5, 100);
    port->finishCapture();
    exchange(*port, link.value(), 5, 100);
    EXPECT_EQ(contentsOf(pathOf("a")).frames, 5u);
    EXPECT_EQ(port->counters().captureFrames, 5u);
    EXPECT_EQ(port->counters().captureLost, 0u);
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
