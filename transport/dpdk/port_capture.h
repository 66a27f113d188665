// Captures a port: writes every frame that leaves or enters this process to a pcapng file (GLOO_BYPASS_CAPTURE).
//
// It copies each frame, up to the snap length, into memory that a thread of the recorder writes to disk
// (transport/capture/frame_recorder.h): the port never waits for the disk. It does not use DPDK's rte_pcapng, which
// needs an mbuf and an Ethernet device for each frame: memif links are filled and read in place, and come and go while
// the file is open.
//
// Frames that a port sends to itself (ranks that are threads of one process) appear once, as sent. Rank 0 alone
// receives, at GLOO_BYPASS_CAPTURE_MARKERS, step markers that other programs send through the kernel; they precede the
// frames that follow them.
//
// Thread: the port's owner. A forked child does not capture: it leaves file and thread to its parent.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/capture/frame_recorder.h"
#include "transport/capture/marker_socket.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

class PortCapture {
 public:
  // nullptr if the configuration asks for none. `name` and `description` are the interface's in the file. The error is
  // one line that names the setting; no file is left then.
  static Result<std::unique_ptr<PortCapture>> create(const TransportConfig& config, const std::string& name,
                                                     const std::string& description);
  // Calls finish() if no one has.
  ~PortCapture();
  PortCapture(const PortCapture&) = delete;
  PortCapture& operator=(const PortCapture&) = delete;

  // `frame` holds the pieces of the frame, in order.
  void sent(std::span<const std::byte> frame) { record(capture::FrameDirection::kSent, {&frame, 1}, frame.size()); }
  void sent(std::span<const std::byte> headers, const OutgoingDatagram& datagram);
  // `wholeBytes`: the frame's length; `frame` may be only its beginning.
  void received(std::span<const std::byte> frame, std::size_t wholeBytes) {
    record(capture::FrameDirection::kReceived, {&frame, 1}, wholeBytes);
  }

  // Call about each millisecond: takes markers that have arrived, and reports once on stderr if recording ended early.
  void onTick();
  // Writes what is left and the statistics; reports on stderr what the file lacks. Later frames are not recorded. May
  // be called again.
  void finish();
  void addTo(PortCounters& counters) const;

 private:
  PortCapture(const TransportConfig& config, std::string path, std::unique_ptr<capture::FrameRecorder> recorder,
              std::optional<capture::MarkerSocket> markers);
  void record(capture::FrameDirection direction, std::span<const std::span<const std::byte>> pieces,
              std::size_t wholeBytes);
  void lookForMarkers(TimePoint now);
  void say(const std::string& what) const;

  const pid_t pid_;
  const std::string rank_, path_;
  std::unique_ptr<capture::FrameRecorder> recorder_;
  std::optional<capture::MarkerSocket> markers_;
  const Duration toUnixTime_;
  TimePoint nextLook_{};
  capture::UnixTime latest_{};  // in the file
  bool saidEnded_ = false, finished_ = false;
};

}  // namespace gloo_bypass::dpdk
