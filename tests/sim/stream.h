// A host that always has something to send, and one that always receives it: for measuring a path.
#pragma once

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

}  // namespace gloo_bypass::sim
