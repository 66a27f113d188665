// Receives the step markers (transport/wire/step_marker.h) of programs that send no frames through this capture, on a
// UDP socket of the kernel. It turns each datagram into the frame that would have carried it. One owner; never blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/capture/pcapng_blocks.h"

namespace gloo_bypass::capture {

class MarkerSocket {
 public:
  // `address`: IPv4, optionally with ":PORT" (default: the markers' own). The error says what is wrong with it.
  static Result<MarkerSocket> open(const std::string& address);
  static bool isAddress(const std::string& address);

  int fd() const { return socket_.get(); }
  // Calls back for each marker that has come, with the kernel's time of reception and its frame; kMarkersALook at most.
  // Returns how many. MAC addresses are 02:00:00:00:00:00.
  std::size_t receive(const std::function<void(UnixTime received, std::span<const std::byte> frame)>& onMarker);
  // A step has two markers.
  static constexpr std::size_t kMarkersALook = 16;
  // Wait at least this long between two calls: each is a system call. Frames within one such interval of a marker may
  // land on its wrong side.
  static constexpr Duration kLookInterval = std::chrono::microseconds(20);

 private:
  explicit MarkerSocket(FileDescriptor socket) : socket_(std::move(socket)) {}
  FileDescriptor socket_;
};

}  // namespace gloo_bypass::capture
