// Link mode auto: two ports as one. Each peer is reached by the best link that both ends have: memory where the two
// share a machine and a memif directory, the network otherwise, also where one of them cannot share memory. Both ends
// ask the same question of the same two addresses, so they choose alike.
//
// One thread polls both. While no link over the network is open, that port is neither polled nor slept in: ranks of one
// host run as in link mode memif. From the first such link on the owner sleeps in the network's port, and peers over
// memory end that sleep at its doorbell (wake_page.h).
//
// A link's id is the inner port's, doubled, plus one for the network's.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

class AutoPort final : public PacketPort {
 public:
  // `memory`: makeMemoryPort's (no_memory_port.h), with network's doorbell(). `networkNote`: a line for stderr once the
  // network is used; empty: none.
  AutoPort(std::unique_ptr<PacketPort> memory, std::unique_ptr<PacketPort> network, std::string networkNote = "");

  std::vector<std::byte> localAddress() const override;
  std::string describe() const override { return memory_->describe() + ", " + network_->describe(); }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override;
  std::size_t rails(std::span<const std::byte> remoteAddress) const override;
  Result<LinkId> openRail(std::span<const std::byte> remoteAddress, std::size_t rail) override;
  void closeLink(LinkId link) override;
  LinkProperties linkProperties(LinkId link) const override { return portOf(link).linkProperties(innerId(link)); }
  std::string describeLink(LinkId link) const override { return portOf(link).describeLink(innerId(link)); }
  std::size_t receiveBurst() const override { return memory_->receiveBurst() + network_->receiveBurst(); }
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override;
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    return portOf(link).transmit(innerId(link), datagrams);
  }
  void wakePeers() override;
  bool gathers() const override { return network_->gathers(); }
  bool wakesForRoom() const override { return memory_->wakesForRoom() && network_->wakesForRoom(); }
  std::string trouble(LinkId link) const override { return portOf(link).trouble(innerId(link)); }
  void onTick(TimePoint now) override;
  void armWakeup() override;
  void block(Duration timeout) override;
  void disarmWakeup() override;
  void wake() override { memory_->wake(); }
  int doorbell() const override { return network_->doorbell(); }
  PortCounters counters() const override;
  void finishCapture() override;

 private:
  static constexpr LinkId kMemory = 0, kNetwork = 1;
  static LinkId innerId(LinkId link) { return link >> 1; }
  PacketPort& portOf(LinkId link) const { return (link & 1) == kNetwork ? *network_ : *memory_; }
  bool usesNetwork() const { return networkLinks_ > 0; }

  // Before memory_, which wakes through its descriptor.
  const std::unique_ptr<PacketPort> network_;
  const std::unique_ptr<PacketPort> memory_;
  const std::string networkNote_;
  std::size_t networkLinks_ = 0;              // opened so far
  std::atomic<bool> sleepsInNetwork_{false};  // read by block()
};

}  // namespace gloo_bypass::dpdk
