#include "transport/pairs/pairs_transport.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/pairs/pair_channel.h"

namespace gloo_bypass::pairs {
namespace {

class PairsTransport final : public PolledTransport {
 public:
  PairsTransport(std::unique_ptr<PolledTransport> memory, std::unique_ptr<PolledTransport> network)
      : network_(std::move(network)), memory_(std::move(memory)) {}

  ~PairsTransport() override {
    closeAll();
    stopEngine();
  }

  void start(const ProgressOptions& options) {
    startEngine(options);
    memory_->shareEngine(progress());
    network_->shareEngine(progress());
  }

  std::string describe() const override { return memory_->describe() + ", " + network_->describe(); }
  void closeAll() override {
    memory_->closeAll();
    network_->closeAll();
  }

  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override {
    const auto reachesByMemory = [this](std::span<const std::byte> portAddress) {
      const bool reached = memory_->reaches(portAddress);
      if (!reached) useNetwork();
      return reached;
    };
    auto channel = std::make_unique<PairChannel>(reachesByMemory, observer);
    auto memory = memory_->openChannel(options, channel->asObserver());
    if (!memory) return memory.error();
    auto network = network_->openChannel(options, channel->asObserver());
    if (!network) return network.error();
    if (Status status = channel->setInner(std::move(memory).value(), std::move(network).value()); !status) {
      return status.error();
    }
    return std::unique_ptr<MessageChannel>(std::move(channel));
  }

  TransportReport report() const override;

  // Pollable

  bool poll(TimePoint now) noexcept override {
    const bool some = memory_->poll(now);
    return (usesNetwork_ || network_->nextDeadline() <= now) && network_->poll(now) ? true : some;
  }
  void flush(TimePoint now) noexcept override {
    memory_->flush(now);
    network_->flush(now);
  }
  void drivenBy(bool waiter) noexcept override {
    memory_->drivenBy(waiter);
    network_->drivenBy(waiter);
  }
  TimePoint nextDeadline() const noexcept override {
    return std::min(memory_->nextDeadline(), network_->nextDeadline());
  }
  Duration patience() const noexcept override {
    return usesNetwork_ ? std::min(memory_->patience(), network_->patience()) : memory_->patience();
  }
  void armWakeup() noexcept override {
    sleepsInNetwork_.store(usesNetwork_, std::memory_order_relaxed);
    memory_->sleepElsewhere(usesNetwork_);
    memory_->armWakeup();
    if (usesNetwork_) network_->armWakeup();
  }
  void disarmWakeup() noexcept override {
    memory_->disarmWakeup();
    if (sleepsInNetwork_.load(std::memory_order_relaxed)) network_->disarmWakeup();
  }
  void block(Duration timeout) noexcept override {
    if (!sleepsInNetwork_.load(std::memory_order_relaxed)) return memory_->block(timeout);
    network_->block(std::min(timeout, memory_->longestSleep()));
  }
  void wake() noexcept override { memory_->wake(); }

 private:
  // A thread may be asleep where nothing that comes over the network would wake it.
  void useNetwork() {
    if (!std::exchange(usesNetwork_, true)) memory_->wake();
  }

  // Before memory_, which wakes through its descriptor.
  const std::unique_ptr<PolledTransport> network_;
  const std::unique_ptr<PolledTransport> memory_;
  bool usesNetwork_ = false;                  // a pair has connected over it
  std::atomic<bool> sleepsInNetwork_{false};  // read by block()
};

TransportReport PairsTransport::report() const {
  TransportReport all = memory_->report();
  TransportReport network = network_->report();
  all.description = describe();
  all.total += network.total;
  all.bytesSent += network.bytesSent;
  all.bytesReceived += network.bytesReceived;
  all.port.insert(all.port.end(), network.port.begin(), network.port.end());
  for (ChannelReport& channel : all.channels) channel.number *= 2;
  for (ChannelReport& channel : network.channels) {
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
