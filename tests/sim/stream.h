// Hosts that always have something to send, and always receive it: for measuring a path.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tools/simulation/core/host.h"

namespace gloo_bypass::sim {

// Two hosts that each have something to send to the other one. Way 0: from the first to the second.
class TwoWayStream {
 public:
  // Keeps `depth` messages of `messageBytes` posted on both sides of each way that has begun. Sets both observers.
  TwoWayStream(Host& first, Host& second, std::size_t messageBytes, std::size_t depth)
      : hosts_{&first, &second}, depth_(depth), data_(messageBytes), sink_(messageBytes) {
    for (const std::size_t host : {0u, 1u}) {
      hosts_[host]->setObserver([this, host](const SessionEvent& event) {
        if (event.type == SessionEvent::Type::kSendComplete) send(host);
        if (event.type != SessionEvent::Type::kReceiveComplete) return;
        deliveredBytes_[1 - host] += event.length;
        receive(host);
      });
    }
  }

  void start(std::size_t way) {
    for (std::size_t i = 0; i < depth_; ++i) {
      receive(1 - way);
      send(way);
    }
  }
  // Of each way.
  std::array<std::uint64_t, 2> deliveredBytes() const { return deliveredBytes_; }

 private:
  static constexpr MessageKey kKey{MessageKind::kUnbound, 1};

  void send(std::size_t host) {
    hosts_[host]->operate([this](Session& session, TimePoint) {
      (void)session.postSend({next_++, kKey, data_.data(), data_.size(), 0}).ok();
    });
  }
  void receive(std::size_t host) {
    hosts_[host]->operate([this](Session& session, TimePoint) {
      (void)session.postReceive({next_++, kKey, sink_.data(), sink_.size(), false}).ok();
    });
  }

  const std::array<Host*, 2> hosts_;
  const std::size_t depth_;
  std::vector<std::byte> data_, sink_;  // every message the same; contents are judged elsewhere
  std::array<std::uint64_t, 2> deliveredBytes_{};
  std::uint64_t next_ = 1;
};

// Only the first one sends.
class Stream {
 public:
  Stream(Host& sender, Host& receiver, std::size_t messageBytes, std::size_t depth)
      : streams_(sender, receiver, messageBytes, depth) {}

  void start() { streams_.start(0); }
  std::uint64_t deliveredBytes() const { return streams_.deliveredBytes()[0]; }

 private:
  TwoWayStream streams_;
};

}  // namespace gloo_bypass::sim
