// One DPDK Ethernet device with one receive and one transmit queue: made from a virtual device's arguments or adopted
// by name, configured and started; at the end stopped, closed and removed.
//
// Thread: one owner at a time. Making and removing devices is serialised inside.
#pragma once

#include <rte_ethdev.h>

#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/status.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::dpdk {

struct EthernetDeviceOptions {
  std::string name;           // of the device; unique in the process
  std::string vdevArguments;  // "key=value,..."; unused with existing
  bool existing = false;      // a device on a bus (PCI), which the EAL finds; not made here
  rte_mempool* receivePool = nullptr;
  std::uint16_t receiveDescriptors = 0, transmitDescriptors = 0;  // 0: the driver's choice
  // 0: leave; else set it and allow frames of that size. memif's driver claims 1,518 bytes but carries what its buffers
  // (bsize) hold: its MTU is not set, and mtu() returns this value.
  std::size_t mtu = 0;
  bool receiveInterrupts = false;  // try; see hasReceiveInterrupts
};

class EthernetDevice {
 public:
  static Result<std::unique_ptr<EthernetDevice>> create(const EthernetDeviceOptions& options);
  ~EthernetDevice();
  EthernetDevice(const EthernetDevice&) = delete;
  EthernetDevice& operator=(const EthernetDevice&) = delete;

  std::uint16_t receive(rte_mbuf** mbufs, std::uint16_t count) { return rte_eth_rx_burst(port_, 0, mbufs, count); }
  // Takes ownership of a prefix of the mbufs; the caller keeps the rest.
  std::uint16_t transmit(rte_mbuf** mbufs, std::uint16_t count) { return rte_eth_tx_burst(port_, 0, mbufs, count); }

  std::uint16_t port() const { return port_; }
  bool linkUp() const;
  MacAddress mac() const;
  std::size_t mtu() const;
  // Whether transmit() copies segments before it returns, so that they may lie in any memory.
  bool copiesSegments() const { return copiesSegments_; }
  // Whether it computes and checks UDP checksums.
  bool checksums() const { return checksums_; }
  bool hasReceiveInterrupts() const { return receiveInterrupts_; }
  // Frames that the driver dropped because it lacked buffers or ring space.
  std::uint64_t missed() const;

 private:
  EthernetDevice() = default;
  Status configure(const EthernetDeviceOptions& options);
  bool isMemif() const { return name_.starts_with("net_memif"); }

  std::string name_;
  bool virtual_ = false;
  bool started_ = false;
  bool receiveInterrupts_ = false, checksums_ = false, copiesSegments_ = false;
  std::size_t assumedMtu_ = 0;  // 0: the driver's own
  std::uint16_t port_ = RTE_MAX_ETHPORTS;
};

}  // namespace gloo_bypass::dpdk
