#include "transport/dpdk/auto_port.h"

#include <algorithm>
#include <cstdio>

#include "transport/dpdk/port_address.h"

namespace gloo_bypass::dpdk {
namespace {

// Hands up with this port's ids.
class InnerSink final : public PacketSink {
 public:
  InnerSink(PacketSink& sink, LinkId port) : sink_(sink), port_(port) {}
  void onArrivals() noexcept override { sink_.onArrivals(); }
  void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept override {
    sink_.onDatagram(outerId(link), datagram);
  }
  void onStranger() noexcept override { sink_.onStranger(); }
  void onLinkDown(LinkId link, const Error& error) noexcept override { sink_.onLinkDown(outerId(link), error); }
  void onDatagramTooLarge(LinkId link, std::size_t bytes) noexcept override {
    sink_.onDatagramTooLarge(outerId(link), bytes);
  }
  bool sentBySession(LinkId link, std::span<const std::byte> datagram) const noexcept override {
    return sink_.sentBySession(outerId(link), datagram);
  }
  bool onPortUnreachable(LinkId link) noexcept override { return sink_.onPortUnreachable(outerId(link)); }

 private:
  LinkId outerId(LinkId link) const { return link << 1 | port_; }

  PacketSink& sink_;
  const LinkId port_;
};

}  // namespace

std::vector<std::byte> AutoPort::localAddress() const {
  return encodeAutoAddress(ways_.memory().localAddress(), ways_.network().localAddress());
}

Result<LinkId> AutoPort::openLink(std::span<const std::byte> remoteAddress) {
  const auto peer = decodeAutoAddress(remoteAddress);
  if (!peer) return peer.error();
  if (!ways_.memory().reaches(peer.value().memory)) return openRail(remoteAddress, 0);
  const auto opened = ways_.memory().openLink(peer.value().memory);
  if (!opened) return opened;
  return opened.value() << 1 | kMemory;
}

std::size_t AutoPort::rails(std::span<const std::byte> remoteAddress) const {
  const auto peer = decodeAutoAddress(remoteAddress);
  return !peer || ways_.memory().reaches(peer.value().memory) ? 1 : ways_.network().rails(peer.value().network);
}

Result<LinkId> AutoPort::openRail(std::span<const std::byte> remoteAddress, std::size_t rail) {
  const auto peer = decodeAutoAddress(remoteAddress);
  if (!peer) return peer.error();
  const auto opened = ways_.network().openRail(peer.value().network, rail);
  if (!opened) return opened;
  if (ways_.useNetwork() && !networkNote_.empty()) std::fprintf(stderr, "gloo-bypass: %s\n", networkNote_.c_str());
  return opened.value() << 1 | kNetwork;
}

void AutoPort::closeLink(LinkId link) { portOf(link).closeLink(innerId(link)); }

std::size_t AutoPort::receive(PacketSink& sink, std::size_t maxDatagrams) {
  InnerSink memory(sink, kMemory);
  std::size_t received = ways_.memory().receive(memory, std::min(maxDatagrams, memoryTraits_.receiveBurst));
  if (ways_.usesNetwork() && received < maxDatagrams) {
    InnerSink network(sink, kNetwork);
    received += ways_.network().receive(network, std::min(maxDatagrams - received, networkTraits_.receiveBurst));
  }
  return received;
}

void AutoPort::wakePeers() {
  ways_.memory().wakePeers();
  if (ways_.usesNetwork()) ways_.network().wakePeers();
}

void AutoPort::onTick(TimePoint now) {
  ways_.memory().onTick(now);
  ways_.network().onTick(now);
}

PortCounters AutoPort::counters() const {
  PortCounters sum = ways_.memory().counters();
  sum += ways_.network().counters();
  return sum;
}

void AutoPort::finishCapture() {
  ways_.memory().finishCapture();
  ways_.network().finishCapture();
}

}  // namespace gloo_bypass::dpdk
