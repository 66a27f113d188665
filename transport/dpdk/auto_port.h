// Link mode auto: two ports as one. Each peer is reached by the best link that both ends have: memory where the two
// share a machine and a memif directory, the network otherwise, also where one of them cannot share memory. Both ends
// ask the same question of the same two addresses, so they choose alike.
//
// One thread polls both, and sleeps as transport/pairs/two_ways.h says. Until the first link over the network, that
// port is not polled.
//
// A link's id is the inner port's, doubled, plus one for the network's.
#pragma once

#include <memory>
#include <string>

#include "transport/datagram/packet_port.h"
#include "transport/pairs/two_ways.h"

namespace gloo_bypass::dpdk {

class AutoPort final : public PacketPort {
 public:
  // `memory`: makeMemoryPort's (no_memory_port.h), with network's doorbell(). `networkNote`: a line for stderr once the
  // network is used; empty: none.
  AutoPort(std::unique_ptr<PacketPort> memory, std::unique_ptr<PacketPort> network, std::string networkNote = "")
      : ways_(std::move(memory), std::move(network)), networkNote_(std::move(networkNote)) {}

  std::vector<std::byte> localAddress() const override;
  std::string describe() const override { return ways_.describe(); }
  PacketPortTraits traits() const override {
    return {.receiveBurst = memoryTraits_.receiveBurst + networkTraits_.receiveBurst,
            .gathers = networkTraits_.gathers,
            .wakesForRoom = memoryTraits_.wakesForRoom && networkTraits_.wakesForRoom,
            .doorbell = networkTraits_.doorbell};
  }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override;
  std::size_t rails(std::span<const std::byte> remoteAddress) const override;
  Result<LinkId> openRail(std::span<const std::byte> remoteAddress, std::size_t rail) override;
  void closeLink(LinkId link) override;
  LinkProperties linkProperties(LinkId link) const override { return portOf(link).linkProperties(innerId(link)); }
  std::string describeLink(LinkId link) const override { return portOf(link).describeLink(innerId(link)); }
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override;
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    return portOf(link).transmit(innerId(link), datagrams);
  }
  void wakePeers() override;
  std::string trouble(LinkId link) const override { return portOf(link).trouble(innerId(link)); }
  void onTick(TimePoint now) override;
  void armWakeup() override { ways_.armWakeup(); }
  void block(Duration timeout) override { ways_.block(timeout); }
  void disarmWakeup() override { ways_.disarmWakeup(); }
  void wake() override { ways_.wake(); }
  PortCounters counters() const override;
  void finishCapture() override;

 private:
  static constexpr LinkId kMemory = 0, kNetwork = 1;
  static LinkId innerId(LinkId link) { return link >> 1; }
  PacketPort& portOf(LinkId link) const { return (link & 1) == kNetwork ? ways_.network() : ways_.memory(); }

  pairs::TwoWays<PacketPort> ways_;
  const PacketPortTraits memoryTraits_ = ways_.memory().traits(), networkTraits_ = ways_.network().traits();
  const std::string networkNote_;
};

}  // namespace gloo_bypass::dpdk
