#include "transport/dpdk/ethernet_device.h"

#include <fmt/format.h>
#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_errno.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "transport/base/broken_pipe_held.h"
#include "transport/base/mutex.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/interrupt_thread.h"

namespace gloo_bypass::dpdk {
namespace {

Mutex& deviceMutex() {
  static Mutex mutex;
  return mutex;
}

Error deviceError(const std::string& name, const char* what, int code) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
               fmt::format("DPDK device {}: {}: {}{}", name, what, rte_strerror(code < 0 ? -code : code),
                           Eal::lastErrorSuffix())};
}

Error interruptsLate(const std::string& name) {
  return Error{ErrorScope::kDevice, ErrorCode::kTimedOut,
               fmt::format("DPDK device {}: EAL's interrupt thread has not run for {} s", name,
                           std::chrono::duration_cast<std::chrono::seconds>(kInterruptThreadLimit).count())};
}

void stopAndRemove(const std::string& name, std::uint16_t port, bool isVirtual, bool started) {
  if (started) (void)rte_eth_dev_stop(port);
  // Removing a virtual device also closes its port.
  if (isVirtual) {
    (void)rte_vdev_uninit(name.c_str());
  } else if (port != RTE_MAX_ETHPORTS) {
    rte_eth_dev_info info{};
    const int known = rte_eth_dev_info_get(port, &info);
    (void)rte_eth_dev_close(port);
    if (known == 0) (void)rte_dev_remove(info.device);  // so that the EAL can probe it again
  }
}

}  // namespace

Result<std::unique_ptr<EthernetDevice>> EthernetDevice::create(const EthernetDeviceOptions& options) {
  // Before the lock: on failure the destructor runs, and it locks too.
  std::unique_ptr<EthernetDevice> device(new EthernetDevice);
  const MutexLock lock(deviceMutex());
  const BrokenPipeHeld held;  // virtio-user writes its state to its vhost, which may be gone
  device->name_ = options.name;
  Eal::forgetLastError();
  if (device->isMemif() && interruptsOverdue()) return interruptsLate(options.name);
  if (!options.existing) {
    if (rte_eth_dev_count_avail() >= RTE_MAX_ETHPORTS) {
      return Error{ErrorScope::kDevice, ErrorCode::kExhausted,
                   fmt::format("DPDK allows {} devices in one process and all are in use: no more peers can be linked",
                               RTE_MAX_ETHPORTS)};
    }
    const int made = rte_vdev_init(options.name.c_str(), options.vdevArguments.c_str());
    if (made != 0) return deviceError(options.name, "cannot be made", made);
    device->virtual_ = true;
  }
  int found = rte_eth_dev_get_port_by_name(options.name.c_str(), &device->port_);
  if (found != 0 && options.existing) {
    // The EAL probes once, when it starts; probe a device again that was removed since.
    found = rte_dev_probe(options.name.c_str());
    if (found == 0) found = rte_eth_dev_get_port_by_name(options.name.c_str(), &device->port_);
  }
  if (found != 0) {
    return deviceError(options.name, "not found, or DPDK has no driver for it (Debian: librte-meta-net has all)",
                       found);
  }
  const Status configured = device->configure(options);
  if (!configured) return configured.error();
  return device;
}

Status EthernetDevice::configure(const EthernetDeviceOptions& options) {
  rte_eth_dev_info info{};
  int code = rte_eth_dev_info_get(port_, &info);
  if (code != 0) return deviceError(name_, "cannot be queried", code);
  rte_eth_conf configuration{};
  configuration.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  checksums_ = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0 &&
               (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM) != 0;
  if (checksums_) {
    configuration.txmode.offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
    configuration.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
  }
  const std::string_view driver = info.driver_name != nullptr ? info.driver_name : "";
  copiesSegments_ = configuration.txmode.offloads & RTE_ETH_TX_OFFLOAD_MULTI_SEGS &&
                    (driver == "net_af_packet" || driver == "net_vhost");
  if (driver == "net_memif") {
    assumedMtu_ = options.mtu;
  } else if (options.mtu != 0) {
    configuration.rxmode.mtu = static_cast<std::uint32_t>(options.mtu);
  }
  configuration.intr_conf.rxq = options.receiveInterrupts ? 1 : 0;
  code = rte_eth_dev_configure(port_, 1, 1, &configuration);
  if (code != 0 && options.receiveInterrupts) {
    configuration.intr_conf.rxq = 0;
    code = rte_eth_dev_configure(port_, 1, 1, &configuration);
  }
  if (code != 0) return deviceError(name_, "cannot be configured", code);
  const auto socket = static_cast<unsigned>(std::max(0, rte_eth_dev_socket_id(port_)));
  code = rte_eth_rx_queue_setup(port_, 0, options.receiveDescriptors, socket, nullptr, options.receivePool);
  if (code != 0) return deviceError(name_, "cannot set up its receive queue", code);
  code = rte_eth_tx_queue_setup(port_, 0, options.transmitDescriptors, socket, nullptr);
  if (code != 0) return deviceError(name_, "cannot set up its transmit queue", code);
  code = rte_eth_dev_start(port_);
  if (code != 0) return deviceError(name_, "cannot be started", code);
  started_ = true;
  receiveInterrupts_ = configuration.intr_conf.rxq != 0;
  return {};
}

// The memif driver's socket handlers run in the EAL's interrupt thread. They share a device's messages, without a lock,
// with the thread that stops or closes it: between its sendmsg and the next step a handler would find its message
// freed.
EthernetDevice::~EthernetDevice() {
  if (!virtual_ && port_ == RTE_MAX_ETHPORTS) return;  // none was made
  const MutexLock lock(deviceMutex());
  const BrokenPipeHeld held;  // virtio-user writes to its vhost when it closes, too
  const auto removal = [name = name_, port = port_, isVirtual = virtual_, started = started_] {
    stopAndRemove(name, port, isVirtual, started);
  };
  if (!isMemif()) {
    removal();
  } else if (!betweenInterrupts(removal)) {
    std::fprintf(stderr, "gloo-bypass: %s; the device is closed when it does\n", interruptsLate(name_).message.c_str());
  }
}

bool EthernetDevice::linkUp() const {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

MacAddress EthernetDevice::mac() const {
  rte_ether_addr address{};
  (void)rte_eth_macaddr_get(port_, &address);
  MacAddress mac;
  std::memcpy(mac.data(), address.addr_bytes, mac.size());
  return mac;
}

std::size_t EthernetDevice::mtu() const {
  if (assumedMtu_ != 0) return assumedMtu_;
  std::uint16_t mtu = 0;
  return rte_eth_dev_get_mtu(port_, &mtu) == 0 ? mtu : 0;
}

std::uint64_t EthernetDevice::missed() const {
  rte_eth_stats stats{};
  if (rte_eth_stats_get(port_, &stats) != 0) return 0;
  return stats.imissed + stats.rx_nombuf;
}

}  // namespace gloo_bypass::dpdk
