// A port of the fabric that is a tap interface of its own making: the host's kernel sees an interface with the host's
// address, in the namespace that the description says, and the fabric the frames.
//
// One system call a frame, and no care needed: the kernel finishes segments and checksums before a tap, and tells when
// a frame waits. The interface goes with the port. Thread: the switch's. Needs CAP_NET_ADMIN in the namespace, and
// /dev/net/tun.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/switch/fabric_port.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass::fabric {

class TapPort final : public FabricPort {
 public:
  // `epoll` outlives the port. Errors: the interface exists, no such namespace, no right, no /dev/net/tun.
  static Result<std::unique_ptr<TapPort>> create(const HostDescription& host, std::size_t longestFrame, int epoll);

  std::string describe() const override { return "tap " + interface_; }
  bool connected() const override { return true; }
  void service() override {}
  std::size_t receive(FrameSink& sink, std::size_t maxFrames) override;
  std::size_t transmit(std::span<Frame* const> frames) override;
  void wakeOnFrames(bool wanted) override;

 private:
  TapPort(std::string interface, std::size_t longestFrame, int epoll)
      : FabricPort(longestFrame), interface_(std::move(interface)), epoll_(epoll), buffer_(longestFrame + 1) {}

  const std::string interface_;
  const int epoll_;
  FileDescriptor tap_;
  std::vector<std::byte> buffer_;  // a frame and one byte more: what fills it is too long
};

}  // namespace gloo_bypass::fabric
