// The contents of a fabric's capture: frames as they entered, interfaces by host, markers in their place.
#include "tools/fabric/switch/fabric_capture.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "tests/support/temporary_folder.h"
#include "tests/tools/fabric/switch/memory_port.h"
#include "tools/capture/analysis.h"
#include "tools/capture/capture_file.h"
#include "tools/fabric/switch/fabric_loop.h"
#include "transport/wire/step_marker.h"

namespace gloo_bypass::fabric {
namespace {

using std::chrono::milliseconds;

Description twoHosts(const std::string& edges) {
  auto description = parseDescription({.text = "ranks = 2\n" + edges, .name = "test", .flags = {}});
  EXPECT_TRUE(description.ok()) << (description.ok() ? "" : description.error().message);
  return std::move(description).value();
}

Bytes frameOf(unsigned to, unsigned from, std::size_t length) {
  Bytes frame(length);
  frame[0] = frame[6] = std::byte{2};
  frame[5] = static_cast<std::byte>(to);
  frame[11] = static_cast<std::byte>(from);
  return frame;
}

class Captured {
 public:
  explicit Captured(const std::string& edges, CaptureOptions options = {}) : description_(twoHosts(edges)) {
    options.path = path();
    auto created = FabricCapture::create(options, description_, epoll_.get(), start_);
    EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
    capture = std::move(created).value();
    std::vector<std::unique_ptr<FabricPort>> made;
    for (int i = 0; i < 2; ++i) {
      auto port = std::make_unique<MemoryPort>();
      ports.push_back(port.get());
      made.push_back(std::move(port));
    }
    fabricSwitch = std::make_unique<FabricSwitch>(description_, std::move(made), SwitchLimits{}, start_);
    fabricSwitch->observe(*capture);
  }
  std::string path() const { return folder_.path + "/capture.pcapng"; }
  void send(std::size_t from, std::size_t length) {
    ports[from]->toFabric.push_back(frameOf(from == 0 ? 2 : 1, from == 0 ? 1 : 2, length));
  }
  void pollAt(Duration elapsed) { fabricSwitch->poll(start_ + elapsed); }
  int epoll() const { return epoll_.get(); }
  const Description& description() const { return description_; }

  std::vector<MemoryPort*> ports;
  std::unique_ptr<FabricSwitch> fabricSwitch;
  std::unique_ptr<FabricCapture> capture;

 private:
  const TemporaryFolder folder_;
  const Description description_;
  const FileDescriptor epoll_{::epoll_create1(EPOLL_CLOEXEC)};
  const TimePoint start_ = monotonicTime();
};

TEST(FabricCapture, FramesThatAnEdgeLoses_AreThereAsTheyEntered) {
  Captured fabric("[[edge]]\nfrom = \"r0\"\nto = \"r1\"\nloss = \"100%\"\n",
                  {.path = "", .snapLength = 50, .markersAddress = ""});
  fabric.send(0, 300);
  fabric.pollAt(milliseconds(1));
  fabric.send(1, 40);
  fabric.pollAt(milliseconds(7));
  ASSERT_TRUE(fabric.capture->finish(monotonicTime()).ok());
  auto file = capture::CaptureFile::open(fabric.path(), "");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto first = file.value().next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->originalLength, 300u);
  EXPECT_EQ(first->bytes.size(), 50u);
  const capture::CaptureTime at = first->time;
  const auto second = file.value().next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->originalLength, 40u);
  EXPECT_EQ(second->time - at, milliseconds(6));
  EXPECT_FALSE(file.value().next().has_value());
  EXPECT_EQ(fabric.capture->json()["frames"], 2);
  EXPECT_EQ(fabric.capture->complaint(), "");
}

TEST(FabricCapture, TimeOfFrames_IsThatOfTheWorld) {
  Captured fabric("");
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  fabric.send(0, 100);
  fabric.pollAt(Duration::zero());
  ASSERT_TRUE(fabric.capture->finish(monotonicTime()).ok());
  const auto time = capture::CaptureFile::open(fabric.path(), "").value().next()->time;
  EXPECT_LE(time, before + std::chrono::minutes(1));
  EXPECT_GE(time, before - std::chrono::minutes(1));
}

// A rank's socket; it sends markers to the fabric's address for them.
class MarkerSender {
 public:
  MarkerSender() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  void send(std::uint16_t port, wire::StepMarker marker) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string text = wire::stepMarkerText(marker);
    EXPECT_EQ(::sendto(socket_.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(text.size()));
  }
  // Binds to the port of step 12.
  bool bindAsStep() const {
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_port = htons(wire::stepMarkerSourcePort(12));
    return ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0;
  }

 private:
  const FileDescriptor socket_;
};

std::uint16_t freePort() {
  const FileDescriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  (void)::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

TEST(FabricCapture, MarkersOverTheKernel_LieBetweenTheFramesAndOpenTheirStep) {
  const std::uint16_t port = freePort();
  Captured fabric("", {.path = "", .snapLength = 128, .markersAddress = "127.0.0.1:" + std::to_string(port)});
  const MarkerSender sender;
  ASSERT_TRUE(sender.bindAsStep());
  fabric.send(0, 100);
  fabric.pollAt(milliseconds(1));
  sender.send(port, {12, false});
  fabric.send(0, 200);
  fabric.pollAt(milliseconds(2));
  fabric.send(1, 400);
  fabric.pollAt(milliseconds(3));
  sender.send(port, {12, true});
  fabric.send(0, 800);
  fabric.pollAt(milliseconds(4));
  ASSERT_TRUE(fabric.capture->finish(monotonicTime()).ok());
  EXPECT_EQ(fabric.capture->json()["markers"], 2);
  auto file = capture::CaptureFile::open(fabric.path(), "");
  ASSERT_TRUE(file.ok());
  capture::Analysis analysis({.markerPort = port, .interval = milliseconds(100)});
  while (const auto frame = file.value().next()) {
    analysis.add(frame->time, capture::dissect(file.value().linkLayer(), frame->bytes, frame->originalLength));
  }
  analysis.finish();
  ASSERT_EQ(analysis.steps().steps().size(), 1u);
  const capture::StepWindow& step = analysis.steps().steps()[0];
  EXPECT_TRUE(step.complete);
  EXPECT_EQ(step.step, 12u);
  EXPECT_EQ(step.bytes, 600u);
  EXPECT_EQ(step.end - step.begin, milliseconds(2));
}

TEST(FabricCapture, MarkersThatWait_WakeTheFabric) {
  const std::uint16_t port = freePort();
  const Captured fabric("", {.path = "", .snapLength = 128, .markersAddress = "127.0.0.1:" + std::to_string(port)});
  epoll_event event{};
  EXPECT_EQ(::epoll_wait(fabric.epoll(), &event, 1, 0), 0);
  MarkerSender().send(port, {1, false});
  EXPECT_EQ(::epoll_wait(fabric.epoll(), &event, 1, 5'000), 1);
}

TEST(FabricCapture, BadMarkersAddress_IsRefusedAndLeavesNoFile) {
  const Captured fabric("");
  const FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  for (const char* address : {"here", "127.0.0.1:0", "127.0.0.1:99999", "203.0.113.9"}) {
    const std::string path = fabric.path() + ".other";
    const auto created =
        FabricCapture::create({path, 128, address}, fabric.description(), epoll.get(), monotonicTime());
    ASSERT_FALSE(created.ok()) << address;
    EXPECT_NE(created.error().message.find("--markers"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(
      FabricCapture::create({fabric.path(), 128, ""}, fabric.description(), epoll.get(), monotonicTime()).ok());
}

}  // namespace
}  // namespace gloo_bypass::fabric
