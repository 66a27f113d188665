#include "collectives/network/peer.h"

#include <utility>

#include <fmt/format.h>

namespace gloo_bypass::collectives {
namespace {

// Addresses of transfers are never 1.
constexpr OperationToken kControlToken = 1;

}  // namespace

Status Peer::open(Transport& transport, const ChannelOptions& options) {
  auto channel = transport.openChannel(options, this);
  if (!channel) return channel.error();
  channel_ = std::move(channel).value();
  return {};
}

Status Peer::connect(std::span<const std::byte> address) {
  const Status status = channel_->connect(address);
  if (status.ok()) return status;
  Error error = status.error();
  error.message = fmt::format("rank {} cannot connect to rank {}: {}", ownRank_, rank_, error.message);
  return error;
}

Status Peer::send(Transfer& transfer, MessageKey key, const std::byte* data, std::size_t length, bool confirmed) {
  transfer.state = Transfer::State::kUnderWay;
  transfer.sends = true;
  transfer.peer = this;
  return posted(transfer, channel_->postSend({.token = reinterpret_cast<OperationToken>(&transfer),
                                              .key = key,
                                              .data = data,
                                              .length = length,
                                              .confirmed = confirmed}));
}

Status Peer::receive(Transfer& transfer, MessageKey key, std::byte* data, std::size_t capacity,
                     const BytesConsumer& consumer) {
  transfer.state = Transfer::State::kUnderWay;
  transfer.sends = false;
  transfer.peer = this;
  return posted(transfer, channel_->postReceive({.token = reinterpret_cast<OperationToken>(&transfer),
                                                 .key = key,
                                                 .data = data,
                                                 .capacity = capacity,
                                                 .consumer = consumer}));
}

Status Peer::posted(Transfer& transfer, const Status& status) {
  if (status.ok()) return status;
  transfer.state = Transfer::State::kIdle;
  if (ended_) return *ended_;
  Error error = status.error();
  error.message = fmt::format("rank {} (seen by rank {}): {}", rank_, ownRank_, error.message);
  return error;
}

void Peer::cancel(Transfer& transfer) {
  if (transfer.state != Transfer::State::kUnderWay) return;
  transfer.state = Transfer::State::kIdle;
  const auto token = reinterpret_cast<OperationToken>(&transfer);
  (void)(transfer.sends ? channel_->cancelSend(token) : channel_->cancelReceive(token));
}

void Peer::leave() {
  if (channel_ != nullptr) channel_->close(/*abort=*/false);
  channel_.reset();
}

void Peer::endTransfer(OperationToken token, std::size_t length) noexcept {
  auto& transfer = *reinterpret_cast<Transfer*>(token);
  transfer.state = Transfer::State::kEnded;
  transfer.owner->onTransferEnd(transfer, length);
}

void Peer::onReceiveComplete(OperationToken token, std::size_t length) noexcept {
  if (token != kControlToken) return endTransfer(token, length);
  receivesControl_ = false;
  const auto message = decodeControlMessage(std::span(control_).first(length));
  if (!message) {
    controlsWaiting_ = 0;
    return end(
        {ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol,
         fmt::format("rank {} sent a control message that no correct rank sends, seen by rank {}", rank_, ownRank_)});
  }
  events_.onControl(*this, *message);
  receiveControl();
}

void Peer::onMessageAnnounced(MessageKey key, std::size_t) noexcept {
  if (key == controlKey()) {
    ++controlsWaiting_;
    receiveControl();
  } else if (const auto tag = programTag(key)) {
    events_.onProgramMessage(*this, *tag);
  } else if (const auto of = collectiveTag(key); of && of->index == 0) {
    events_.onHeader(*this, of->operation);
  }
}

void Peer::receiveControl() {
  if (postsControl_) return;
  postsControl_ = true;
  // One that is here already ends while it is posted.
  while (!receivesControl_ && controlsWaiting_ > 0) {
    --controlsWaiting_;
    receivesControl_ = true;
    const Status status = channel_->postReceive(
        {.token = kControlToken, .key = controlKey(), .data = control_.data(), .capacity = control_.size()});
    if (status.ok()) continue;
    receivesControl_ = false;  // the channel has failed and says so itself
    break;
  }
  postsControl_ = false;
}

void Peer::onStateChange(ChannelState state) noexcept {
  switch (state) {
    case ChannelState::kConnected:
      connected_ = true;
      return;
    case ChannelState::kPeerClosed:
      return end(
          {ErrorScope::kSession, ErrorCode::kPeerClosed,
           fmt::format("rank {} ({}) has left the group, seen by rank {}", rank_, channel_->describePeer(), ownRank_)});
    case ChannelState::kFailed: {
      const Error& error = channel_->error();
      const bool lost = error.isLoss();
      return end({ErrorScope::kSession, lost ? ErrorCode::kPeerVanished : error.code,
                  fmt::format("rank {} lost its connection to rank {} ({}): {}", ownRank_, rank_,
                              channel_->describePeer(), error.message)});
    }
    default:
      return;
  }
}

void Peer::end(Error error) {
  if (ended_) return;
  ended_ = std::move(error);
  events_.onEnded(*this);
}

}  // namespace gloo_bypass::collectives
