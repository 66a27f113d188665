// The capture of a fabric: each frame as it enters at a port, in a pcapng file with an interface for each host, at the
// fabric's clock; and step markers that come by the kernel, for ranks whose only way out of their process is a memif
// socket.
//
// Frames are captured before the edges' emulation: what an edge loses, delays or alters is in the file as it was sent.
// Thread: the switch's. The file is written by a thread of the recorder's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tools/fabric/core/description.h"
#include "tools/fabric/switch/frame_observer.h"
#include "transport/base/status.h"
#include "transport/capture/frame_recorder.h"
#include "transport/capture/marker_socket.h"

namespace gloo_bypass::fabric {

struct CaptureOptions {
  std::string path;  // empty: no capture
  std::uint32_t snapLength = 128;
  std::string markersAddress;  // IPv4, with a port behind a colon or without; empty: no markers
};

class FabricCapture final : public FrameObserver {
 public:
  // Makes the file and the markers' socket, which is put into `epoll`. The error is one line; no file is left then.
  static Result<std::unique_ptr<FabricCapture>> create(const CaptureOptions& options, const Description& description,
                                                       int epoll, TimePoint now);

  void onRound(TimePoint now) override;
  void onFrame(std::size_t host, std::span<const std::byte> frame, TimePoint now) override;

  // Writes what is left. The error says what the file lacks.
  Status finish(TimePoint now);
  // A line for people, where frames were lost or the file has ended early; else empty.
  std::string complaint() const;
  nlohmann::ordered_json json() const;

 private:
  FabricCapture(CaptureOptions options, std::unique_ptr<capture::FrameRecorder> recorder,
                std::optional<capture::MarkerSocket> markers, std::size_t hosts, TimePoint now);
  capture::UnixTime unixTime(TimePoint now) const { return now.time_since_epoch() + toUnixTime_; }
  void receiveMarkers(TimePoint now);

  const CaptureOptions options_;
  const std::unique_ptr<capture::FrameRecorder> recorder_;
  std::optional<capture::MarkerSocket> markers_;
  const std::size_t markersInterface_;
  const Duration toUnixTime_;
  std::uint64_t markersReceived_ = 0;
  TimePoint nextLook_{};
};

}  // namespace gloo_bypass::fabric
