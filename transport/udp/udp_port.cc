#include "transport/udp/udp_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "transport/base/wake_event.h"
#include "transport/network/local_address.h"
#include "transport/udp/port_address.h"
#include "transport/udp/udp_rail.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::udp {
namespace {

static_assert(PacketPort::kMaxRails <= WakeEvent::kOthers);

class UdpPort final : public PacketPort {
 public:
  // From one to kMaxRails. A link's id modulo their number is its rail's index.
  explicit UdpPort(std::vector<std::unique_ptr<UdpRail>> rails) : rails_(std::move(rails)) {}
  const Status& canBeWoken() const { return wakeEvent_.made(); }

  std::vector<std::byte> localAddress() const override {
    std::vector<network::Endpoint> own;
    for (const auto& rail : rails_) own.push_back(rail->local());
    return encode(own);
  }
  std::string describe() const override {
    std::string text;
    for (const auto& rail : rails_) text += (text.empty() ? "" : ", ") + toString(rail->local());
    return (rails_.size() == 1 ? "UDP socket " : "UDP sockets ") + text;
  }
  PacketPortTraits traits() const override {
    return {
        .receiveBurst = 64 * rails_.size(), .gathers = true, .wakesForRoom = true, .doorbell = wakeEvent_.doorbell()};
  }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override { return openRail(remoteAddress, 0); }
  std::size_t rails(std::span<const std::byte> remoteAddress) const override {
    const auto peer = decode(remoteAddress);
    return peer ? std::min(rails_.size(), peer.value().size()) : 1;
  }
  Result<LinkId> openRail(std::span<const std::byte> remoteAddress, std::size_t rail) override {
    const auto peer = decode(remoteAddress);
    if (!peer) return peer.error();
    return rails_[rail]->openLink(peer.value()[rail]);
  }
  void closeLink(LinkId link) override { railOf(link).closeLink(link); }
  LinkProperties linkProperties(LinkId link) const override { return railOf(link).linkProperties(link); }
  std::string describeLink(LinkId link) const override { return railOf(link).describeLink(link); }

  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override {
    std::size_t received = 0;
    const std::size_t each = std::max<std::size_t>(maxDatagrams / rails_.size(), 1);
    for (const auto& rail : rails_) received += rail->receive(sink, each);
    return received;
  }
  std::size_t transmit(LinkId link, std::span<const OutgoingDatagram> datagrams) override {
    return railOf(link).transmit(link, datagrams);
  }
  void wakePeers() override {
    for (const auto& rail : rails_) rail->wakePeers();
  }
  std::string trouble(LinkId link) const override { return railOf(link).trouble(link); }

  void armWakeup() override { wakeEvent_.arm(); }
  void disarmWakeup() override { wakeEvent_.disarm(); }
  void wake() override { wakeEvent_.wake(); }
  void block(Duration timeout) override {
    std::array<pollfd, kMaxRails> ready{};
    for (std::size_t i = 0; i < rails_.size(); ++i) ready[i] = rails_[i]->wanted(&timeout);
    wakeEvent_.block(std::span(ready).first(rails_.size()), timeout);
    for (std::size_t i = 0; i < rails_.size(); ++i) rails_[i]->onWoken(ready[i].revents);
  }

  PortCounters counters() const override {
    PortCounters sum;
    for (const auto& rail : rails_) sum += rail->counters();
    return sum;
  }

 private:
  UdpRail& railOf(LinkId link) const { return *rails_[link % rails_.size()]; }

  WakeEvent wakeEvent_;
  const std::vector<std::unique_ptr<UdpRail>> rails_;
};

}  // namespace

Result<std::unique_ptr<PacketPort>> makeUdpPort(const TransportConfig& config, Offload offload) {
  const auto locals = network::chooseLocalAddresses(config.interface, config.masterAddress, PacketPort::kMaxRails);
  if (!locals) return locals.error();
  const auto count = static_cast<LinkId>(locals.value().size());
  std::vector<std::unique_ptr<UdpRail>> rails;
  for (const network::Endpoint& local : locals.value()) {
    const std::size_t smallestMtu = wire::kMinDatagramBytes + local.headerBytes();
    if (config.mtu != 0 && config.mtu < smallestMtu) {
      return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                   fmt::format("GLOO_BYPASS_MTU='{}' is not allowed at {}: it must be 0, or at least {} bytes",
                               config.mtu, toString(local), smallestMtu)};
    }
    auto socket = UdpSocket::open(local, config.udpPorts, offload);
    if (!socket) return socket.error();
    rails.push_back(std::make_unique<UdpRail>(std::move(socket).value(), config.mtu,
                                              static_cast<LinkId>(count + rails.size()), count));
  }
  auto port = std::make_unique<UdpPort>(std::move(rails));
  if (!port->canBeWoken()) return port->canBeWoken();
  return std::unique_ptr<PacketPort>(std::move(port));
}

}  // namespace gloo_bypass::udp
