#include "tools/fabric/switch/fabric_capture.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <optional>

namespace gloo_bypass::fabric {
namespace {

Error captureError(const std::string& what) { return {ErrorScope::kDevice, ErrorCode::kUnavailable, what}; }

Result<capture::MarkerSocket> openMarkers(const std::string& address, int epoll) {
  auto opened = capture::MarkerSocket::open(address);
  if (!opened) return captureError(fmt::format("--markers {}: {}", address, opened.error().message));
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, opened.value().fd(), &event) != 0) {
    return captureError(fmt::format("--markers {}: {}", address, std::strerror(errno)));
  }
  return opened;
}

}  // namespace

Result<std::unique_ptr<FabricCapture>> FabricCapture::create(const CaptureOptions& options,
                                                             const Description& description, int epoll, TimePoint now) {
  std::optional<capture::MarkerSocket> markers;
  capture::RecorderOptions recording{.snapLength = options.snapLength, .application = "gloo-bypass fabric"};
  for (const HostDescription& host : description.hosts)
    recording.interfaces.push_back({host.name, ipv4Text(host.ipv4)});
  if (!options.markersAddress.empty()) {
    auto opened = openMarkers(options.markersAddress, epoll);
    if (!opened) return opened.error();
    markers = std::move(opened).value();
    recording.interfaces.push_back({"markers", options.markersAddress});
  }
  auto recorder = capture::FrameRecorder::create(options.path, recording);
  if (!recorder) return captureError("--capture " + recorder.error().message);
  return std::unique_ptr<FabricCapture>(
      new FabricCapture(options, std::move(recorder).value(), std::move(markers), description.hosts.size(), now));
}

FabricCapture::FabricCapture(CaptureOptions options, std::unique_ptr<capture::FrameRecorder> recorder,
                             std::optional<capture::MarkerSocket> markers, std::size_t hosts, TimePoint now)
    : options_(std::move(options)),
      recorder_(std::move(recorder)),
      markers_(std::move(markers)),
      markersInterface_(hosts),
      toUnixTime_(capture::unixClockAhead(now)) {}

void FabricCapture::onRound(TimePoint now) {
  if (markers_ && now >= nextLook_) {
    receiveMarkers(now);
    nextLook_ = now + capture::MarkerSocket::kLookInterval;
  }
}

void FabricCapture::onFrame(std::size_t host, std::span<const std::byte> frame, TimePoint now) {
  recorder_->record(host, unixTime(now), frame);
}

void FabricCapture::receiveMarkers(TimePoint now) {
  markersReceived_ += markers_->receive([&](capture::UnixTime, std::span<const std::byte> frame) {
    recorder_->record(markersInterface_, unixTime(now), frame);
  });
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
