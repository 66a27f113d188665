// A port of the fabric that is a network interface of the kernel, through DPDK's af_packet driver: usually one end of a
// veth pair whose other end is in a rank's network namespace.
//
// What the other end sends must be whole frames: segmentation and checksums are done late on a veth (TSO, GSO, checksum
// offload), and a frame taken from it half-way is longer than the MTU, or has no checksum. So these are switched off at
// the other end: ethtool -K DEV tx off tso off gso off. Longer frames are dropped and counted. Thread: the switch's.
// Needs CAP_NET_RAW in the interface's namespace.
#pragma once

#include <memory>
#include <string>

#include "tools/fabric/switch/fabric_port.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"
#include "transport/dpdk/ethernet_device.h"
#include "transport/dpdk/packet_buffers.h"

namespace gloo_bypass::fabric {

class InterfacePort final : public FabricPort {
 public:
  // Bytes of each of the driver's two rings: what comes while the fabric's process has no processor waits there. They
  // are locked in memory, which a user may do up to a limit: with so many interfaces, this is what each can have.
  static std::size_t ringBytesFor(std::size_t interfaces);
  // The EAL runs. `epoll` outlives the port. Errors: no such interface, down, an MTU below the fabric's, no right.
  static Result<std::unique_ptr<InterfacePort>> create(const std::string& interface, std::size_t longestFrame,
                                                       std::size_t ringBytes, int epoll);

  std::string describe() const override { return "interface " + interface_; }
  bool connected() const override { return connected_; }
  void service() override { connected_ = device_->linkUp(); }
  std::size_t receive(FrameSink& sink, std::size_t maxFrames) override;
  std::size_t transmit(std::span<Frame* const> frames) override;
  void wakeOnFrames(bool wanted) override;
  FabricPortCounters counters() const override;

 private:
  InterfacePort(std::string interface, std::size_t longestFrame)
      : FabricPort(longestFrame), interface_(std::move(interface)) {}
  void lookAtChecksum(std::span<const std::byte> frame);
  Status openAlarm(int index, int epoll);
  void setAlarmFilter(std::uint32_t acceptedBytes) const;

  const std::string interface_;
  // The driver's own socket is out of reach; this one sees the same frames, but only while somebody sleeps on it.
  FileDescriptor alarm_;
  dpdk::MempoolHandle received_, toSend_;
  std::unique_ptr<dpdk::EthernetDevice> device_;
  bool connected_ = true;
  unsigned checksumsLooked_ = 0;
};

}  // namespace gloo_bypass::fabric
