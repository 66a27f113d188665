// Where a capture receives the step markers (transport/wire/step_marker.h) of programs whose frames it does not see: a
// UDP socket of the kernel's. Each datagram is made into the frame that would have carried it. One owner; nothing
// waits.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/capture/pcapng_blocks.h"

namespace gloo_bypass::capture {

class MarkerSocket {
 public:
  // `address`: IPv4, with a port behind a colon or, without, the markers' own. The error says what is wrong with it.
  static Result<MarkerSocket> open(const std::string& address);
  static bool isAddress(const std::string& address);

  int fd() const { return socket_.get(); }
  // Hands over the frame of each marker that has come, and when the kernel received it; kMarkersALook at most; returns
  // how many. MAC addresses are 02:00:00:00:00:00.
  std::size_t receive(const std::function<void(UnixTime received, std::span<const std::byte> frame)>& onMarker);
  // A step has two.
  static constexpr std::size_t kMarkersALook = 16;
  // How long not to look again: a look is a system call. Frames that come within one such interval of a marker may be
  // on its wrong side.
  static constexpr Duration kLookInterval = std::chrono::microseconds(20);

 private:
  explicit MarkerSocket(FileDescriptor socket) : socket_(std::move(socket)) {}
  FileDescriptor socket_;
};

}  // namespace gloo_bypass::capture
