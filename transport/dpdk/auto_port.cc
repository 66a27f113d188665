#include "transport/dpdk/auto_port.h"

#include <algorithm>
#include <cstdio>
#include <utility>

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
  void onLinkDown(LinkId link, const Error& error) noexcept override { sink_.onLinkDown(outerId(link), error); }
  void onDatagramTooLarge(LinkId link, std::size_t bytes) noexcept override {
    sink_.onDatagramTooLarge(outerId(link), bytes);
  }
  bool sentBySession(LinkId link, std::span<const std::byte> datagram) const noexcept override {
    return sink_.sentBySession(outerId(link), datagram);
  }

 private:
  LinkId outerId(LinkId link) const { return link << 1 | port_; }

  PacketSink& sink_;
  const LinkId port_;
};

}  // namespace

AutoPort::AutoPort(std::unique_ptr<PacketPort> memory, std::unique_ptr<PacketPort> network, std::string networkNote)
    : network_(std::move(network)), memory_(std::move(memory)), networkNote_(std::move(networkNote)) {}

std::vector<std::byte> AutoPort::localAddress() const {
  return encodeAutoAddress(memory_->localAddress(), network_->localAddress());
}

Result<LinkId> AutoPort::openLink(std::span<const std::byte> remoteAddress) {
  const auto peer = decodeAutoAddress(remoteAddress);
  if (!peer) return peer.error();
  const bool local = memory_->reaches(peer.value().memory);
  const auto opened = local ? memory_->openLink(peer.value().memory) : network_->openLink(peer.value().network);
  if (!opened) return opened;
  if (!local && networkLinks_++ == 0) {
    memory_->wake();  // a thread may be asleep where nothing that comes over the network would wake it
    if (!networkNote_.empty()) std::fprintf(stderr, "gloo-bypass: %s\n", networkNote_.c_str());
  }
  return opened.value() << 1 | (local ? kMemory : kNetwork);
}

std::size_t AutoPort::rails(std::span<const std::byte> remoteAddress) const {
  const auto peer = decodeAutoAddress(remoteAddress);
  return !peer || memory_->reaches(peer.value().memory) ? 1 : network_->rails(peer.value().network);
}

Result<LinkId> AutoPort::openRail(std::span<const std::byte> remoteAddress, std::size_t rail) {
  const auto peer = decodeAutoAddress(remoteAddress);
  if (!peer) return peer.error();
  const auto opened = network_->openRail(peer.value().network, rail);
  if (!opened) return opened;
  ++networkLinks_;
  return opened.value() << 1 | kNetwork;
}

void AutoPort::closeLink(LinkId link) { portOf(link).closeLink(innerId(link)); }

std::size_t AutoPort::receive(PacketSink& sink, std::size_t maxDatagrams) {
  InnerSink memory(sink, kMemory);
  std::size_t received = memory_->receive(memory, std::min(maxDatagrams, memory_->receiveBurst()));
  if (usesNetwork() && received < maxDatagrams) {
    InnerSink network(sink, kNetwork);
    received += network_->receive(network, std::min(maxDatagrams - received, network_->receiveBurst()));
  }
  return received;
}

void AutoPort::wakePeers() {
  memory_->wakePeers();
  if (usesNetwork()) network_->wakePeers();
}

void AutoPort::onTick(TimePoint now) {
  memory_->onTick(now);
  network_->onTick(now);
}

void AutoPort::armWakeup() {
  sleepsInNetwork_.store(usesNetwork(), std::memory_order_relaxed);
  memory_->sleepElsewhere(usesNetwork());
  memory_->armWakeup();
  if (usesNetwork()) network_->armWakeup();
}

void AutoPort::disarmWakeup() {
  memory_->disarmWakeup();
  network_->disarmWakeup();
}

void AutoPort::block(Duration timeout) {
  if (!sleepsInNetwork_.load(std::memory_order_relaxed)) return memory_->block(timeout);
  network_->block(std::min(timeout, memory_->longestSleep()));
}

PortCounters AutoPort::counters() const {
  PortCounters sum = memory_->counters();
  sum += network_->counters();
  return sum;
}

void AutoPort::finishCapture() {
  memory_->finishCapture();
  network_->finishCapture();
}

}  // namespace gloo_bypass::dpdk
