// A kernel UDP socket that holds our port while DPDK moves the packets.
//
// It keeps the port ours, and keeps the kernel from answering our packets with ICMP port unreachable. When the port
// goes away, the kernel gives just that answer to a peer that still sends. It can also wake a sleeper: a socket filter
// drops everything, but while armed lets one byte of each packet pass, which makes the socket readable. The kernel
// delivers a packet to packet sockets before UDP. So a packet that did not make the socket readable before arm() is
// already in our ring when the owner looks once more.
#pragma once

#include <cstdint>

#include "transport/base/file_descriptor.h"
#include "transport/base/port_range.h"
#include "transport/base/status.h"
#include "transport/dpdk/kernel_interface.h"

namespace gloo_bypass::dpdk {

class PortReservation {
 public:
  // Takes the first free port of `ports` at the interface's address. kConfiguration: none is free.
  static Result<PortReservation> create(const KernelInterface& interface, const PortRange& ports);

  int fd() const { return fd_.get(); }
  std::uint16_t port() const { return port_; }
  void arm() const;
  void disarm() const;

 private:
  void setFilter(std::uint32_t acceptedBytes) const;

  FileDescriptor fd_;
  std::uint16_t port_ = 0;
};

}  // namespace gloo_bypass::dpdk
