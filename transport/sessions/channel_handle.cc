#include <utility>

#include "transport/base/check.h"
#include "transport/base/own_description.h"
#include "transport/progress/progress_engine.h"
#include "transport/sessions/channel_session.h"

namespace gloo_bypass {
namespace {

Status refusal(const char* why) { return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, why); }
Status closedStatus() { return refusal("the channel has been closed"); }

class ChannelHandle final : public MessageChannel {
 public:
  ChannelHandle(ChannelSession& session, std::vector<std::byte> portAddress, std::vector<std::byte> offer)
      : session_(&session),
        address_(encodeChannelAddress({.sessionId = session.id(),
                                       .portAddress = std::move(portAddress),
                                       .description = describeSelf(session.options().localRank),
                                       .offer = std::move(offer)})) {}
  ~ChannelHandle() override { ChannelHandle::close(false); }

  std::vector<std::byte> localAddress() const override { return address_; }

  Status connect(std::span<const std::byte> remoteAddress) override {
    if (state() != ChannelState::kUnconnected) return refusal("connect: already called, or closed");
    const auto address = decodeChannelAddress(remoteAddress);
    if (!address) return address.error();
    if (address.value().sessionId == session_->id()) return refusal("cannot connect to self");
    return dirty().connect(monotonicNow(), address.value());
  }

  Status postSend(const SendRequest& request) override {
    return session_ == nullptr ? closedStatus() : dirty().postSend(request);
  }
  Status postReceive(const ReceiveRequest& request) override {
    GLOO_BYPASS_CHECK(!request.persistent || request.consumer.consume == nullptr);
    return session_ == nullptr ? closedStatus() : dirty().postReceive(request);
  }
  bool cancelSend(OperationToken token) override { return session_ != nullptr && dirty().cancelSend(token); }
  bool cancelReceive(OperationToken token) override { return session_ != nullptr && dirty().cancelReceive(token); }

  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override {
    return session_ == nullptr ? std::nullopt : session_->oldestUnmatched(key);
  }

  ChannelState state() const override { return session_ == nullptr ? ChannelState::kClosed : session_->state(); }
  const Error& error() const override {
    GLOO_BYPASS_CHECK(session_ != nullptr);
    return session_->error();
  }
  std::string describePeer() const override {
    return session_ == nullptr || session_->peerName().empty() ? "(not connected)" : session_->peerName();
  }
  ChannelCounters counters() const override { return session_ == nullptr ? ChannelCounters{} : session_->counters(); }
  std::optional<PathFigures> path() const override { return session_ == nullptr ? std::nullopt : session_->path(); }

  void close(bool abort) override {
    if (session_ == nullptr) return;
    ChannelSession& session = *std::exchange(session_, nullptr);
    session.close(monotonicNow(), abort);
    session.abandon();
  }

 private:
  // For calls after which the session may have something to send or to report.
  ChannelSession& dirty() {
    session_->markDirty();
    return *session_;
  }

  ChannelSession* session_;  // null once closed
  const std::vector<std::byte> address_;
};

}  // namespace

std::unique_ptr<MessageChannel> makeChannelHandle(ChannelSession& session, std::vector<std::byte> portAddress,
                                                  std::vector<std::byte> offer) {
  return std::make_unique<ChannelHandle>(session, std::move(portAddress), std::move(offer));
}

}  // namespace gloo_bypass
