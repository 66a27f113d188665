#include "transport/verbs/verbs_channel.h"

#include <utility>

#include "transport/base/check.h"
#include "transport/io/channel_address.h"
#include "transport/io/progress_engine.h"

namespace gloo_bypass {
namespace {

class VerbsChannel final : public MessageChannel {
 public:
  VerbsChannel(RdmaDevice& device, RdmaSession& session)
      : device_(device),
        session_(&session),
        address_(encodeChannelAddress({.sessionId = session.id(),
                                       .portAddress = encodeRdmaAddress(session.address()),
                                       .description = describeSelf(session.options().localRank)})) {}
  ~VerbsChannel() override { VerbsChannel::close(false); }

  std::vector<std::byte> localAddress() const override { return address_; }

  Status connect(std::span<const std::byte> remoteAddress) override {
    if (session_ == nullptr || session_->state() != ChannelState::kUnconnected) {
      return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, "connect: already called, or closed");
    }
    auto address = decodeChannelAddress(remoteAddress);
    if (!address) return address.error();
    if (address.value().sessionId == session_->id()) {
      return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, "cannot connect to self");
    }
    const auto peer = decodeRdmaAddress(address.value().portAddress);
    if (!peer) return peer.error();
    const TimePoint now = monotonicNow();
    Status status = session_->connect(now, address.value().sessionId, peer.value(), address.value().description);
    device_.markDirty(*session_);
    return status;
  }

  Status postSend(const SendRequest& request) override {
    return session_ == nullptr ? closedStatus() : session_->postSend(request);
  }
  Status postReceive(const ReceiveRequest& request) override {
    return session_ == nullptr ? closedStatus() : session_->postReceive(request);
  }
  bool cancelSend(OperationToken token) override { return session_ != nullptr && session_->cancelSend(token); }
  bool cancelReceive(OperationToken token) override { return session_ != nullptr && session_->cancelReceive(token); }

  ChannelState state() const override { return session_ == nullptr ? ChannelState::kClosed : session_->state(); }
  const Error& error() const override {
    GLOO_BYPASS_CHECK(session_ != nullptr);
    return session_->error();
  }
  std::string describePeer() const override {
    return session_ == nullptr || session_->peerName().empty() ? "(not connected)" : session_->peerName();
  }
  ChannelCounters counters() const override { return session_ == nullptr ? ChannelCounters{} : session_->counters(); }

  void close(bool abort) override {
    if (session_ == nullptr) return;
    std::exchange(session_, nullptr)->close(monotonicNow(), abort);
  }

 private:
  static Status closedStatus() {
    return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, "the channel has been closed");
  }

  RdmaDevice& device_;
  RdmaSession* session_;
  const std::vector<std::byte> address_;
};

}  // namespace

std::unique_ptr<MessageChannel> makeVerbsChannel(RdmaDevice& device, RdmaSession& session) {
  return std::make_unique<VerbsChannel>(device, session);
}

}  // namespace gloo_bypass
