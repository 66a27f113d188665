// Two ways to peers as one: memory within a host, the network between hosts. Both kinds of this have it in common: two
// ports (transport/dpdk/auto_port.h) and two whole transports (pairs_transport.h).
//
// One thread drives both ways. While no peer is reached over the network, the owner does not sleep in it: ranks of one
// host run as over memory alone. From the first such peer on the owner sleeps in the network's way, and peers over
// memory end that sleep at its doorbell (base/doorbell.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "transport/base/time.h"

namespace gloo_bypass::pairs {

// `Way`: PacketPort or PolledTransport. The memory's was made with the network's doorbell.
template <typename Way>
class TwoWays {
 public:
  TwoWays(std::unique_ptr<Way> memory, std::unique_ptr<Way> network)
      : network_(std::move(network)), memory_(std::move(memory)) {}

  Way& memory() const { return *memory_; }
  Way& network() const { return *network_; }
  std::string describe() const { return memory_->describe() + ", " + network_->describe(); }

  bool usesNetwork() const { return usesNetwork_; }
  // A peer is reached over the network. True: the first one. A thread may be asleep where nothing that comes over the
  // network wakes it.
  bool useNetwork() {
    if (std::exchange(usesNetwork_, true)) return false;
    memory_->wake();
    return true;
  }

  // As Way's.
  void armWakeup() {
    sleepsInNetwork_.store(usesNetwork_, std::memory_order_relaxed);
    memory_->sleepElsewhere(usesNetwork_);
    memory_->armWakeup();
    if (usesNetwork_) network_->armWakeup();
  }
  void disarmWakeup() {
    memory_->disarmWakeup();
    if (sleepsInNetwork_.load(std::memory_order_relaxed)) network_->disarmWakeup();
  }
  void block(Duration timeout) {
    if (!sleepsInNetwork_.load(std::memory_order_relaxed)) return memory_->block(timeout);
    network_->block(std::min(timeout, memory_->longestSleep()));
  }
  void wake() { memory_->wake(); }

 private:
  // Before memory_, which wakes through its descriptor.
  const std::unique_ptr<Way> network_;
  const std::unique_ptr<Way> memory_;
  bool usesNetwork_ = false;
  std::atomic<bool> sleepsInNetwork_{false};  // read by block()
};

}  // namespace gloo_bypass::pairs
