// A port with an attacker on its paths, who reads, changes, repeats and forges what arrives. For tests: what does a
// session stand, plain and sealed?
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/byte_order.h"
#include "transport/datagram/packet_port.h"
#include "transport/wire/crc32c.h"
#include "transport/wire/sealed_packet.h"

namespace gloo_bypass::test {

class AttackerPort final : public PacketPort, private PacketSink {
 public:
  using Datagram = std::vector<std::byte>;
  // What arrives instead of `datagram`, in this order.
  using Attack = std::function<std::vector<Datagram>(const Datagram& datagram)>;

  AttackerPort(std::unique_ptr<PacketPort> inner, Attack attack)
      : inner_(std::move(inner)), attack_(std::move(attack)) {}

  std::vector<std::byte> localAddress() const override { return inner_->localAddress(); }
  std::string describe() const override { return inner_->describe(); }
  PacketPortTraits traits() const override { return inner_->traits(); }
  Result<LinkId> openLink(std::span<const std::byte> remote) override { return inner_->openLink(remote); }
  std::size_t rails(std::span<const std::byte> remote) const override { return inner_->rails(remote); }
  Result<LinkId> openRail(std::span<const std::byte> remote, std::size_t rail) override {
    return inner_->openRail(remote, rail);
  }
  void closeLink(LinkId link) override { inner_->closeLink(link); }
  LinkProperties linkProperties(LinkId link) const override {
    LinkProperties properties = inner_->linkProperties(link);
    properties.lossless = false;  // as far as the attacker goes
    return properties;
  }
  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override {
    sink_ = &sink;
    return inner_->receive(*this, maxDatagrams);
  }
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    return inner_->transmit(link, datagrams);
  }
  void wakePeers() override { inner_->wakePeers(); }
  void onTick(TimePoint now) override { inner_->onTick(now); }
  void armWakeup() override { inner_->armWakeup(); }
  void block(Duration timeout) override { inner_->block(timeout); }
  void disarmWakeup() override { inner_->disarmWakeup(); }
  void wake() override { inner_->wake(); }
  PortCounters counters() const override { return inner_->counters(); }

 private:
  void onArrivals() noexcept override { sink_->onArrivals(); }
  void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept override {
    for (const Datagram& arriving : attack_({datagram.begin(), datagram.end()})) sink_->onDatagram(link, arriving);
  }
  void onStranger() noexcept override { sink_->onStranger(); }
  void onLinkDown(LinkId link, const Error& error) noexcept override { sink_->onLinkDown(link, error); }
  bool sentBySession(LinkId link, std::span<const std::byte> datagram) const noexcept override {
    return sink_->sentBySession(link, datagram);
  }
  void onDatagramTooLarge(LinkId link, std::size_t bytes) noexcept override { sink_->onDatagramTooLarge(link, bytes); }
  bool onPortUnreachable(LinkId link) noexcept override { return sink_->onPortUnreachable(link); }

  const std::unique_ptr<PacketPort> inner_;
  const Attack attack_;
  PacketSink* sink_ = nullptr;
};

inline wire::FrameType typeOf(const AttackerPort::Datagram& datagram) {
  const auto sealed = wire::parseSealedHeader(datagram);
  return sealed ? sealed->type : wire::typeOf(datagram);
}

// Changes a byte of the payload, and mends the checksums that anyone can compute.
inline void flipPayload(AttackerPort::Datagram& datagram) {
  constexpr std::size_t kAtCrc = 4, kAtReceiver = 8, kAtHeaderLength = 18, kAtPayloadCrc = 20;
  if (wire::parseSealedHeader(datagram)) {
    datagram[datagram.size() - wire::kSealTagBytes - 1] ^= std::byte{0x40};
    return;
  }
  datagram.back() ^= std::byte{0x40};
  const std::size_t headerBytes = loadLittle<std::uint16_t>(datagram.data() + kAtHeaderLength);
  const std::span<const std::byte> whole(datagram);
  if (loadLittle<std::uint32_t>(datagram.data() + kAtPayloadCrc) != 0) {
    storeLittle(datagram.data() + kAtPayloadCrc, wire::crc32c(whole.subspan(headerBytes)));
  }
  const std::uint32_t first = wire::crc32c(whole.first(kAtCrc));
  storeLittle(datagram.data() + kAtCrc, wire::crc32c(whole.subspan(kAtReceiver, headerBytes - kAtReceiver), first));
}

// A reset to the session that `seen` is for, plain and as sealed as it can be made without the key.
inline std::vector<AttackerPort::Datagram> forgedResets(const AttackerPort::Datagram& seen) {
  wire::PacketHeader header;
  header.type = wire::FrameType::kReset;
  header.receiverId = wire::receiverIdOf(seen);
  wire::PacketWriter writer;
  writer.begin(header);
  writer.reason(static_cast<std::uint32_t>(ErrorCode::kCancelled));
  const auto written = writer.finish();
  const AttackerPort::Datagram plain(written.begin(), written.end());
  AttackerPort::Datagram sealed = plain;
  sealed.resize(plain.size() + wire::kSealTagBytes);
  wire::SealedHeader sealedHeader{.type = header.type, .receiverId = header.receiverId};
  if (const auto overheard = wire::parseSealedHeader(seen)) {
    sealedHeader.keyPhase = overheard->keyPhase;
    sealedHeader.number = overheard->number + 1;
  }
  wire::writeSealedHeader(sealedHeader, std::span(sealed).first(wire::kSealedHeaderBytes));
  return {plain, sealed};
}

}  // namespace gloo_bypass::test
