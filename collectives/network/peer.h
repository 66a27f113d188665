// Another rank, as an executor sees it: the channel to it, its messages under way, and what it has said about itself.
//
// Thread: every method needs the progress engine's exclusive access; called from the channel's observer as well.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "collectives/network/wire.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::collectives {

class Peer;
struct Transfer;

class TransferOwner {
 public:
  // The message is complete, `length` bytes if it was received. It must not post or cancel from here.
  virtual void onTransferEnd(Transfer& transfer, std::size_t length) noexcept = 0;

 protected:
  ~TransferOwner() = default;
};

// One message under way. Its address is the channel's token: it stays where it is until it has ended or was cancelled.
struct Transfer {
  enum class State : std::uint8_t { kIdle, kUnderWay, kEnded };

  TransferOwner* owner = nullptr;
  Peer* peer = nullptr;
  State state = State::kIdle;
  bool sends = false;
  std::size_t bytes = 0;
  // For the owner: which one this is.
  std::uint32_t slot = 0, step = 0, place = 0;
};

class PeerEvents {
 public:
  virtual void onControl(Peer& peer, const ControlMessage& message) = 0;
  // Announced, and no receive was posted.
  virtual void onHeader(Peer& peer, std::uint32_t operation) = 0;  // the lower 24 bits of its number
  virtual void onProgramMessage(Peer& peer, std::uint32_t tag) = 0;
  // It can no longer be reached: peer.ended() says why. What had arrived can still be received.
  virtual void onEnded(Peer& peer) = 0;

 protected:
  ~PeerEvents() = default;
};

class Peer final : public ChannelObserver {
 public:
  Peer(int ownRank, int rank, PeerEvents& events) : rank_(rank), ownRank_(ownRank), events_(events) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Status open(Transport& transport, const ChannelOptions& options);
  Status connect(std::span<const std::byte> address);

  int rank() const { return rank_; }
  MessageChannel& channel() { return *channel_; }
  bool connected() const { return connected_; }
  // Null: it has not ended. One line that names it.
  const Error* ended() const { return ended_ ? &*ended_ : nullptr; }

  // The transfer's other fields are the caller's. The error names the rank.
  Status send(Transfer& transfer, MessageKey key, const std::byte* data, std::size_t length, bool confirmed = false);
  Status receive(Transfer& transfer, MessageKey key, std::byte* data, std::size_t capacity,
                 const BytesConsumer& consumer = {});
  // The memory is not touched any more, and nothing completes.
  void cancel(Transfer& transfer);
  // Closes in good order. Only the destructor may follow.
  void leave();

  // The peer's latest kCalled.
  std::optional<ControlMessage> lastCall;
  // Of its headers that are here: operations that this rank has not begun, as they came.
  std::deque<std::uint32_t> headersAhead;

 private:
  void onSendComplete(OperationToken token) noexcept override { endTransfer(token, 0); }
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override;
  void onMessageAnnounced(MessageKey key, std::size_t length) noexcept override;
  void onStateChange(ChannelState state) noexcept override;
  void endTransfer(OperationToken token, std::size_t length) noexcept;
  void receiveControl();
  Status posted(Transfer& transfer, const Status& status);
  void end(Error error);

  const int rank_, ownRank_;
  PeerEvents& events_;
  std::unique_ptr<MessageChannel> channel_;
  bool connected_ = false;
  std::optional<Error> ended_;
  std::array<std::byte, ControlMessage::kMostBytes> control_{};
  std::size_t controlsWaiting_ = 0;  // announced, and not received yet; one is received at a time
  bool receivesControl_ = false, postsControl_ = false;
};

}  // namespace gloo_bypass::collectives
