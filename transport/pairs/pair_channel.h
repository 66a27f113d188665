// A channel that is one of two, from connect() on. Private to transport/pairs.
//
// What was posted before that waits here, and is posted to the one that was chosen.
//
// Thread: the progress engine's exclusive access.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/channel/message_channel.h"

namespace gloo_bypass::pairs {

class PairChannel final : public MessageChannel, private ChannelObserver {
 public:
  // Whether memory reaches that port address of a peer; a `false` is followed by a connection over the network.
  using ReachesByMemory = std::function<bool(std::span<const std::byte> portAddress)>;

  PairChannel(ReachesByMemory reachesByMemory, ChannelObserver* observer)
      : reachesByMemory_(std::move(reachesByMemory)), observer_(observer) {}
  ~PairChannel() override { PairChannel::close(false); }

  ChannelObserver* asObserver() { return this; }
  // Once, before all else. Errors: their addresses are too long together.
  Status setInner(std::unique_ptr<MessageChannel> memory, std::unique_ptr<MessageChannel> network);

  std::vector<std::byte> localAddress() const override { return address_; }
  Status connect(std::span<const std::byte> remoteAddress) override;
  Status postSend(const SendRequest& request) override { return post(sends_, request, &MessageChannel::postSend); }
  Status postReceive(const ReceiveRequest& request) override {
    return post(receives_, request, &MessageChannel::postReceive);
  }
  bool cancelSend(OperationToken token) override { return cancel(sends_, token, &MessageChannel::cancelSend); }
  bool cancelReceive(OperationToken token) override { return cancel(receives_, token, &MessageChannel::cancelReceive); }
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override {
    return chosen_ == nullptr ? std::nullopt : chosen_->oldestUnmatched(key);
  }
  ChannelState state() const override {
    if (closed_) return ChannelState::kClosed;
    return chosen_ == nullptr ? ChannelState::kUnconnected : chosen_->state();
  }
  const Error& error() const override;
  std::string describePeer() const override;
  ChannelCounters counters() const override { return chosen_ == nullptr ? ChannelCounters{} : chosen_->counters(); }
  std::optional<PathFigures> path() const override { return chosen_ == nullptr ? std::nullopt : chosen_->path(); }
  void close(bool abort) override;

 private:
  // Pass on what the chosen channel reports. connect() notices an inner channel that failed before.
  void onSendComplete(OperationToken token) noexcept override { observer_->onSendComplete(token); }
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override {
    observer_->onReceiveComplete(token, length);
  }
  void onMessageAnnounced(MessageKey key, std::size_t length) noexcept override {
    observer_->onMessageAnnounced(key, length);
  }
  void onStateChange(ChannelState state) noexcept override {
    if (chosen_ != nullptr) observer_->onStateChange(state);
  }

  template <typename Request>
  Status post(std::vector<Request>& waiting, const Request& request, Status (MessageChannel::*posted)(const Request&));
  template <typename Request>
  bool cancel(std::vector<Request>& waiting, OperationToken token, bool (MessageChannel::*cancelled)(OperationToken));
  Status postWaiting();

  const ReachesByMemory reachesByMemory_;
  ChannelObserver* const observer_;
  std::vector<std::byte> address_;
  std::vector<SendRequest> sends_;  // posted before connect(), in order; as many as the user has buffers
  std::vector<ReceiveRequest> receives_;
  std::unique_ptr<MessageChannel> memory_, network_;  // empty: the other was chosen
  MessageChannel* chosen_ = nullptr;
  bool closed_ = false;
};

}  // namespace gloo_bypass::pairs
