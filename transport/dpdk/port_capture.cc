#include "transport/dpdk/port_capture.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "transport/base/own_description.h"
#include "transport/base/printable.h"
#include "transport/base/whole_file.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::size_t kPortInterface = 0, kMarkersInterface = 1;

Error refuse(const std::string& message) {
  return {ErrorScope::kDevice, ErrorCode::kConfiguration, printable(message)};
}

// The ranks of one machine share one environment and so one such address: rank 0, which sends the markers, takes it.
bool receivesMarkers(const TransportConfig& config) {
  return !config.captureMarkers.empty() && (config.rank.empty() || config.rank == "0");
}

}  // namespace

Result<std::unique_ptr<PortCapture>> PortCapture::create(const TransportConfig& config, const std::string& name,
                                                         const std::string& description) {
  if (config.capture.empty() && !config.captureMarkers.empty()) {
    return refuse(
        "GLOO_BYPASS_CAPTURE is not set: GLOO_BYPASS_CAPTURE_MARKERS needs a capture that the markers go into");
  }
  if (config.capture.empty()) return std::unique_ptr<PortCapture>();
  capture::RecorderOptions options{.interfaces = {{name, description}},
                                   .snapLength = static_cast<std::uint32_t>(config.captureSnapLength),
                                   .maxFileBytes = static_cast<std::uint64_t>(config.captureMaxMiB) << 20,
                                   .application = "gloo-bypass"};
  std::optional<capture::MarkerSocket> markers;
  if (receivesMarkers(config)) {
    auto opened = capture::MarkerSocket::open(config.captureMarkers);
    if (!opened)
      return refuse(fmt::format("GLOO_BYPASS_CAPTURE_MARKERS='{}': {}", config.captureMarkers, opened.error().message));
    markers = std::move(opened).value();
    options.interfaces.push_back({"markers", config.captureMarkers});
  }
  const std::string path = withProcessId(config.capture);
  auto recorder = capture::FrameRecorder::create(path, options);
  if (!recorder) return refuse(fmt::format("GLOO_BYPASS_CAPTURE='{}': {}", config.capture, recorder.error().message));
  return std::unique_ptr<PortCapture>(new PortCapture(config, path, std::move(recorder).value(), std::move(markers)));
}

PortCapture::PortCapture(const TransportConfig& config, std::string path,
                         std::unique_ptr<capture::FrameRecorder> recorder, std::optional<capture::MarkerSocket> markers)
    : pid_(::getpid()),
      rank_(config.rank),
      path_(std::move(path)),
      recorder_(std::move(recorder)),
      markers_(std::move(markers)),
      toUnixTime_(capture::unixClockAhead(monotonicNow())) {}

PortCapture::~PortCapture() {
  if (::getpid() == pid_) {
    finish();
  } else {
    (void)recorder_.release();  // its thread does not exist here
  }
}

void PortCapture::sent(std::span<const std::byte> headers, const OutgoingDatagram& datagram) {
  const std::array pieces{headers, datagram.header, datagram.payload};
  record(capture::FrameDirection::kSent, pieces, headers.size() + datagram.header.size() + datagram.payload.size());
}

void PortCapture::record(capture::FrameDirection direction, std::span<const std::span<const std::byte>> pieces,
                         std::size_t wholeBytes) {
  if (finished_) return;
  const TimePoint now = monotonicNow();
  if (markers_ && now >= nextLook_) lookForMarkers(now);
  latest_ = now.time_since_epoch() + toUnixTime_;
  recorder_->record(kPortInterface, latest_, direction, pieces, wholeBytes);
}

// While no one drives the port a marker may wait for long: use the kernel's time, as far as times in the file do not
// decrease.
void PortCapture::lookForMarkers(TimePoint now) {
  nextLook_ = now + capture::MarkerSocket::kLookInterval;
  (void)markers_->receive([&](capture::UnixTime received, std::span<const std::byte> frame) {
    latest_ = std::max(latest_, std::min(received, now.time_since_epoch() + toUnixTime_));
    recorder_->record(kMarkersInterface, latest_, frame);
  });
}

void PortCapture::onTick() {
  if (finished_) return;
  if (markers_) lookForMarkers(monotonicNow());
  if (saidEnded_ || !recorder_->ended()) return;
  saidEnded_ = true;
  say(fmt::format("has ended early, {}; what is there can be read, and the transport goes on",
                  recorder_->counters().failure));
}

void PortCapture::finish() {
  if (finished_) return;
  const TimePoint now = monotonicNow();
  if (markers_) lookForMarkers(now);
  finished_ = true;
  const Status finished = recorder_->finish(now.time_since_epoch() + toUnixTime_);
  const capture::RecorderCounters counters = recorder_->counters();
  if (!counters.failure.empty()) {
    say(fmt::format("ended early, {}: it has {} frames, {} later ones are not in it", counters.failure, counters.frames,
                    counters.lost));
  } else if (!finished) {
    say(finished.error().message);
  } else if (counters.lost > 0) {
    say(fmt::format("has {} frames, {} are not in it: the disk was too slow; lower GLOO_BYPASS_CAPTURE_SNAPLEN",
                    counters.frames, counters.lost));
  }
}

void PortCapture::addTo(PortCounters& counters) const {
  const capture::RecorderCounters recorded = recorder_->counters();
  counters.captureFrames = recorded.frames;
  counters.captureBytes = recorded.bytes;
  counters.captureLost = recorded.lost;
}

void PortCapture::say(const std::string& what) const {
  std::fprintf(stderr, "gloo-bypass: %s: the capture %s %s\n", describeProcess(rank_).c_str(), printable(path_).c_str(),
               what.c_str());
}

}  // namespace gloo_bypass::dpdk
