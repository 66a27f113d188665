// A host that always has something to send, and one that always receives it: for measuring a path.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tools/simulation/core/host.h"

namespace gloo_bypass::sim {

class Stream {
 public:
  // Keeps `depth` messages of `messageBytes` posted on both sides. Sets both observers.
  Stream(Host& sender, Host& receiver, std::size_t messageBytes, std::size_t depth)
      : sender_(sender), receiver_(receiver), depth_(depth), data_(messageBytes), sink_(messageBytes) {
    sender_.setObserver([this](const SessionEvent& event) {
      if (event.type == SessionEvent::Type::kSendComplete) send();
    });
    receiver_.setObserver([this](const SessionEvent& event) {
      if (event.type != SessionEvent::Type::kReceiveComplete) return;
      deliveredBytes_ += event.length;
      receive();
    });
  }

  void start() {
    for (std::size_t i = 0; i < depth_; ++i) {
      receive();
      send();
    }
  }
  std::uint64_t deliveredBytes() const { return deliveredBytes_; }

 private:
  static constexpr MessageKey kKey{MessageKind::kUnbound, 1};

  void send() {
    sender_.operate([this](Session& session, TimePoint) {
      (void)session.postSend({nextSend_++, kKey, data_.data(), data_.size(), 0}).ok();
    });
  }
  void receive() {
    receiver_.operate([this](Session& session, TimePoint) {
      (void)session.postReceive({nextReceive_++, kKey, sink_.data(), sink_.size(), false}).ok();
    });
  }

  Host& sender_;
  Host& receiver_;
  const std::size_t depth_;
  std::vector<std::byte> data_, sink_;  // every message the same; contents are judged elsewhere
  OperationToken nextSend_ = 0, nextReceive_ = 0;
  std::uint64_t deliveredBytes_ = 0;
};

// Two hosts that each have something to send to the other one. Way 0: from the first to the second.
class TwoWayStream {
 public:
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
  std::vector<std::byte> data_, sink_;
  std::array<std::uint64_t, 2> deliveredBytes_{};
  std::uint64_t next_ = 1;
};

}  // namespace gloo_bypass::sim
