#include "transport/pairs/pairs_transport.h"

#include <algorithm>
#include <utility>

#include "transport/pairs/pair_channel.h"
#include "transport/pairs/two_ways.h"

namespace gloo_bypass::pairs {
namespace {

class PairsTransport final : public PolledTransport {
 public:
  PairsTransport(std::unique_ptr<PolledTransport> memory, std::unique_ptr<PolledTransport> network)
      : ways_(std::move(memory), std::move(network)) {}

  ~PairsTransport() override {
    closeAll();
    stopEngine();
  }

  void start(const ProgressOptions& options) {
    startEngine(options);
    memory().shareEngine(progress());
    network().shareEngine(progress());
  }

  std::string describe() const override { return ways_.describe(); }
  void closeAll() override {
    memory().closeAll();
    network().closeAll();
  }

  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override {
    const auto reachesByMemory = [this](std::span<const std::byte> portAddress) {
      const bool reached = memory().reaches(portAddress);
      if (!reached) (void)ways_.useNetwork();
      return reached;
    };
    auto channel = std::make_unique<PairChannel>(reachesByMemory, observer);
    auto ofMemory = memory().openChannel(options, channel->asObserver());
    if (!ofMemory) return ofMemory.error();
    auto ofNetwork = network().openChannel(options, channel->asObserver());
    if (!ofNetwork) return ofNetwork.error();
    if (Status status = channel->setInner(std::move(ofMemory).value(), std::move(ofNetwork).value()); !status) {
      return status.error();
    }
    return std::unique_ptr<MessageChannel>(std::move(channel));
  }

  TransportReport report() const override;

  // Pollable

  bool poll(TimePoint now) noexcept override {
    const bool some = memory().poll(now);
    return (ways_.usesNetwork() || network().nextDeadline() <= now) && network().poll(now) ? true : some;
  }
  void flush(TimePoint now) noexcept override {
    memory().flush(now);
    network().flush(now);
  }
  void drivenBy(bool waiter) noexcept override {
    memory().drivenBy(waiter);
    network().drivenBy(waiter);
  }
  TimePoint nextDeadline() const noexcept override {
    return std::min(memory().nextDeadline(), network().nextDeadline());
  }
  bool disturbed() const noexcept override {
    return memory().disturbed() || (ways_.usesNetwork() && network().disturbed());
  }
  Duration patience() const noexcept override {
    return ways_.usesNetwork() ? std::min(memory().patience(), network().patience()) : memory().patience();
  }
  void armWakeup() noexcept override { ways_.armWakeup(); }
  void disarmWakeup() noexcept override { ways_.disarmWakeup(); }
  void block(Duration timeout) noexcept override { ways_.block(timeout); }
  void wake() noexcept override { ways_.wake(); }

 private:
  PolledTransport& memory() const { return ways_.memory(); }
  PolledTransport& network() const { return ways_.network(); }

  TwoWays<PolledTransport> ways_;
};

TransportReport PairsTransport::report() const {
  TransportReport all = memory().report();
  TransportReport ofNetwork = network().report();
  all.description = describe();
  all.total += ofNetwork.total;
  all.bytesSent += ofNetwork.bytesSent;
  all.bytesReceived += ofNetwork.bytesReceived;
  all.port.insert(all.port.end(), ofNetwork.port.begin(), ofNetwork.port.end());
  for (ChannelReport& channel : all.channels) channel.number *= 2;
  for (ChannelReport& channel : ofNetwork.channels) {
    if (channel.peer.empty()) continue;  // not connected: its memory's stands for it
    channel.number = 2 * channel.number + 1;
    all.channels.push_back(std::move(channel));
  }
  return all;
}

}  // namespace

std::shared_ptr<Transport> makePairsTransport(const TransportConfig& config, std::unique_ptr<PolledTransport> memory,
                                              std::unique_ptr<PolledTransport> network) {
  auto transport = std::make_shared<PairsTransport>(std::move(memory), std::move(network));
  transport->start({.spin = config.spin, .engineCpu = config.engineCpu});
  return transport;
}

}  // namespace gloo_bypass::pairs
