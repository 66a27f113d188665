// The capture of a port: every frame as it leaves this process and as it comes in, in a pcapng file
// (GLOO_BYPASS_CAPTURE).
//
// Frames are kept as far as the snap length, by a copy into memory that a thread of the recorder's writes
// (transport/capture/frame_recorder.h): the port never waits for the disk. DPDK's own rte_pcapng is not used: it wants
// an mbuf and an Ethernet device for each frame, and memif links are filled and read in place and come and go while the
// file is open.
//
// What a port sends to itself (ranks that are threads of one process) is there once, as sent. Step markers that other
// programs send by the kernel are received at GLOO_BYPASS_CAPTURE_MARKERS, by rank 0 only, and are in the file before
// the frames that follow them.
//
// Thread: the port's owner. A forked child has none: it leaves file and thread to its parent.
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
  // nullptr where the configuration asks for none. `name` is that of the interface in the file, `description` its text.
  // The error is one line that names the setting; no file is left then.
  static Result<std::unique_ptr<PortCapture>> create(const TransportConfig& config, const std::string& name,
                                                     const std::string& description);
  // finish(), if that has not been called.
  ~PortCapture();
  PortCapture(const PortCapture&) = delete;
  PortCapture& operator=(const PortCapture&) = delete;

  // The frame lies in these pieces, one after the other.
  void sent(std::span<const std::byte> frame) { record(capture::FrameDirection::kSent, {&frame, 1}, frame.size()); }
  void sent(std::span<const std::byte> headers, const OutgoingDatagram& datagram);
  // `wholeBytes`: its length, of which `frame` may be the beginning.
  void received(std::span<const std::byte> frame, std::size_t wholeBytes) {
    record(capture::FrameDirection::kReceived, {&frame, 1}, wholeBytes);
  }

  // About each millisecond: takes markers that have come, and says once on stderr that recording has ended early.
  void onTick();
  // Writes what is left and the statistics; says on stderr what the file lacks. Later frames are not in it. Once or
  // more.
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
