#include "tools/fabric/fabric_capture.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "transport/wire/step_marker.h"

namespace gloo_bypass::fabric {
namespace {

// A look at the markers' socket is a system call; frames that come within one such interval of a marker may be on its wrong side.
constexpr Duration kLookInterval = std::chrono::microseconds(20);
// A capture of little traffic can be read that soon.
constexpr Duration kFlushInterval = std::chrono::milliseconds(250);
// A step has two.
constexpr int kMarkersALook = 16;
constexpr std::size_t kLongestMarker = 200;

Error captureError(const std::string& what) { return {ErrorScope::kDevice, ErrorCode::kUnavailable, what}; }

std::optional<sockaddr_in> parseAddress(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::uint16_t port = kStepMarkerPort;
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || rest != end || port == 0) return {};
  }
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) return {};
  return address;
}

Result<FileDescriptor> openMarkers(const std::string& text, int epoll) {
  const auto address = parseAddress(text);
  if (!address) return captureError(fmt::format("--markers {}: neither an IPv4 address nor ADDRESS:PORT", text));
  FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return captureError(fmt::format("--markers {}: cannot be received there: {}", text, std::strerror(errno)));
  }
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return captureError(fmt::format("--markers {}: {}", text, std::strerror(errno)));
  }
  return socket;
}

void put16(std::byte* to, std::uint32_t value) {
  to[0] = std::byte(value >> 8);
  to[1] = std::byte(value);
}
void put32(std::byte* to, std::uint32_t value) {
  put16(to, value >> 16);
  put16(to + 2, value & 0xffff);
}

// The frame that would have carried the datagram. MAC addresses are 02:00:00:00:00:00.
std::vector<std::byte> markerFrame(const sockaddr_in& from, const sockaddr_in& to, std::span<const std::byte> payload) {
  constexpr std::size_t kEthernet = 14, kIpv4 = 20, kUdp = 8;
  std::vector<std::byte> frame(kEthernet + kIpv4 + kUdp + payload.size());
  frame[0] = frame[6] = std::byte{2};
  put16(&frame[12], 0x0800);
  std::byte* const ip = &frame[kEthernet];
  put16(ip, 0x4500);
  put16(ip + 2, static_cast<std::uint32_t>(frame.size() - kEthernet));
  put16(ip + 8, 64 << 8 | IPPROTO_UDP);
  put32(ip + 12, ntohl(from.sin_addr.s_addr));
  put32(ip + 16, ntohl(to.sin_addr.s_addr));
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4; i += 2)
    sum += std::to_integer<std::uint32_t>(ip[i]) << 8 | std::to_integer<std::uint32_t>(ip[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put16(ip + 10, ~sum & 0xffff);
  std::byte* const udp = ip + kIpv4;
  put16(udp, ntohs(from.sin_port));
  put16(udp + 2, ntohs(to.sin_port));
  put16(udp + 4, static_cast<std::uint32_t>(kUdp + payload.size()));
  if (!payload.empty()) std::memcpy(udp + kUdp, payload.data(), payload.size());
  return frame;
}

Duration unixClockAhead(TimePoint now) {
  timespec time{};
  (void)::clock_gettime(CLOCK_REALTIME, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec) - now.time_since_epoch();
}

}  // namespace

Result<std::unique_ptr<FabricCapture>> FabricCapture::create(const CaptureOptions& options,
                                                             const Description& description, int epoll, TimePoint now) {
  FileDescriptor markers;
  std::vector<capture::FrameRecorder::Interface> interfaces;
  for (const HostDescription& host : description.hosts) interfaces.push_back({host.name, ipv4Text(host.ipv4)});
  if (!options.markersAddress.empty()) {
    auto opened = openMarkers(options.markersAddress, epoll);
    if (!opened) return opened.error();
    markers = std::move(opened).value();
    interfaces.push_back({"markers", options.markersAddress});
  }
  auto recorder = capture::FrameRecorder::create(options.path, interfaces, options.snapLength, "gloo-bypass fabric");
  if (!recorder) return captureError("--capture " + recorder.error().message);
  return std::unique_ptr<FabricCapture>(
      new FabricCapture(options, std::move(recorder).value(), std::move(markers), description.hosts.size(), now));
}

FabricCapture::FabricCapture(CaptureOptions options, std::unique_ptr<capture::FrameRecorder> recorder,
                             FileDescriptor markers, std::size_t hosts, TimePoint now)
    : options_(std::move(options)),
      recorder_(std::move(recorder)),
      markers_(std::move(markers)),
      markersInterface_(hosts),
      toUnixTime_(unixClockAhead(now)) {}

void FabricCapture::onRound(TimePoint now) {
  if (markers_ && now >= nextLook_) {
    receiveMarkers(now);
    nextLook_ = now + kLookInterval;
  }
  if (now >= nextFlush_) {
    recorder_->flush();
    nextFlush_ = now + kFlushInterval;
  }
}

void FabricCapture::onFrame(std::size_t host, std::span<const std::byte> frame, TimePoint now) {
  recorder_->record(host, unixTime(now), frame);
}

void FabricCapture::receiveMarkers(TimePoint now) {
  std::array<std::byte, kLongestMarker> bytes;
  for (int i = 0; i < kMarkersALook; ++i) {
    sockaddr_in from{}, to{};
    socklen_t length = sizeof from;
    const ssize_t size = ::recvfrom(markers_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                    reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 0) return;
    length = sizeof to;
    (void)::getsockname(markers_.get(), reinterpret_cast<sockaddr*>(&to), &length);
    recorder_->record(markersInterface_, unixTime(now),
                      markerFrame(from, to, std::span(bytes).first(static_cast<std::size_t>(size))));
    ++markersReceived_;
  }
}

Status FabricCapture::finish(TimePoint now) {
  if (markers_) receiveMarkers(now);
  return recorder_->finish(unixTime(now));
}

std::string FabricCapture::complaint() const {
  const capture::RecorderCounters counters = recorder_->counters();
  if (!counters.failure.empty()) {
    return fmt::format("capture: {} has ended early, after {} frames ({}); {} frames since are not in it\n",
                       options_.path, counters.frames, counters.failure, counters.lost);
  }
  if (counters.lost == 0) return "";
  return fmt::format("capture: {} frames are not in {}, {} are: the disk was too slow; lower --snap\n", counters.lost,
                     options_.path, counters.frames);
}

nlohmann::ordered_json FabricCapture::json() const {
  const capture::RecorderCounters counters = recorder_->counters();
  return {{"file", options_.path},      {"snap_length", options_.snapLength}, {"frames", counters.frames},
          {"lost", counters.lost},      {"file_bytes", counters.fileBytes},   {"markers", markersReceived_},
          {"failure", counters.failure}};
}

}  // namespace gloo_bypass::fabric
