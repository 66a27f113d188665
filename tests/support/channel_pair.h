// Two channels of one transport, connected to each other over the loopback port, with the real sessions and engine
// underneath.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "transport/datagram/datagram_transport.h"
#include "transport/process/report_json.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::test {

// Records a channel's events.
struct Recorder final : ChannelObserver {
  void onSendComplete(OperationToken token) noexcept override { ++sent[token]; }
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override { received[token] = length; }
  void onMessageAnnounced(MessageKey key, std::size_t) noexcept override {
    announced.push_back(key.tag);
    if (onAnnounced) onAnnounced(key);
  }
  void onStateChange(ChannelState next) noexcept override {
    state = next;
    if (onState) onState(next);
  }

  std::map<OperationToken, int> sent;
  std::map<OperationToken, std::size_t> received;
  std::vector<std::uint64_t> announced;
  ChannelState state = ChannelState::kUnconnected;
  std::function<void(ChannelState)> onState;
  std::function<void(MessageKey)> onAnnounced;
};

class ChannelPairTest : public ::testing::Test {
 protected:
  void connect(std::shared_ptr<Transport> made) {
    transport = std::move(made);
    exclusive([&] {
      a = std::move(transport->openChannel({.localRank = 0, .peerRank = 1}, &atA).value());
      b = std::move(transport->openChannel({.localRank = 1, .peerRank = 0}, &atB).value());
      ASSERT_TRUE(a->connect(b->localAddress()).ok());
      ASSERT_TRUE(b->connect(a->localAddress()).ok());
    });
    ASSERT_TRUE(wait([&] { return atA.state == ChannelState::kConnected && atB.state == ChannelState::kConnected; }));
  }
  void TearDown() override {
    if (!transport) return;
    exclusive([&] {
      a.reset();
      b.reset();
    });
  }

  void exclusive(const std::function<void()>& f) { transport->progress().exclusive(f); }
  bool wait(const std::function<bool()>& condition) {
    return transport->progress().waitUntil(condition, monotonicNow() + std::chrono::seconds(30));
  }
  nlohmann::json counters() {
    TransportReport report;
    exclusive([&] { report = transport->report(); });
    return reportJson("test", report);
  }

  std::shared_ptr<Transport> transport;
  Recorder atA, atB;
  std::unique_ptr<MessageChannel> a, b;
};

}  // namespace gloo_bypass::test
