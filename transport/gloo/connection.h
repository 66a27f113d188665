// The state of one pair: its channel, its pending operations, and why it failed. Belongs to its group; the Pair is
// Gloo's handle on it.
//
//   kDormant --> kOpen --> kConnected --> kPeerLeft
//      |           |           |              |
//      `-----------+-----------+--------------+--> kFailed --> kClosed      (or at once to kClosed)
//
//   kDormant    no channel yet: on demand, the first use opens it
//   kOpen       there is a channel; it connects once the peer's address is here
//   kPeerLeft   the peer closed, or was lost: operations fail, but what had arrived can be received
//   kFailed     it cannot be opened or connected, a rule was broken, or this rank gave up: everything fails
//   kClosed     closed by this rank: there is no channel any more
//
// Operations may be posted from the first use on; they wait in the channel until it is connected. A channel may copy a
// send and complete it before that. The program learns of it when the peer is there: a peer that never comes gets
// nothing.
//
// Thread: every method needs the progress engine's exclusive access, const members excepted.
// Failures come back as text and are thrown by the caller when it has left exclusive access.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/base/time.h"
#include "transport/channel/message_channel.h"
#include "transport/gloo/connect_mode.h"
#include "transport/gloo/failure_notice.h"
#include "transport/gloo/operation.h"
#include "transport/gloo/remote_message.h"

namespace gloo_bypass::adapter {

class Group;
class RemoteTraffic;

class Connection final : private ChannelObserver {
 public:
  // The caller opens one that connects at once.
  Connection(Group& group, int peerRank, std::chrono::milliseconds timeout, ConnectMode mode);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int peerRank;
  // The context's when the pair was made; for connecting and for bound buffers, as over TCP.
  const std::chrono::milliseconds timeout;

  Failure open();
  // A use begins: opens a dormant connection, and has the addresses exchanged. Null: there is a channel.
  Failure wake();
  bool onDemand() const { return mode_ == ConnectMode::kOnDemand; }
  // The peer's address is here, as the rendezvous carries it (hostile bytes); failure ends the connection.
  void connectTo(std::span<const char> address);
  // The peer's address has not come in time.
  void failFirstUse(const std::string& storeError);
  // For connecting; bounded.
  std::chrono::milliseconds connectTimeout() const;
  // On demand, not connected: when the peer's address must be here. Never while no operation waits (a receive from any
  // has its own timeout; what a bound buffer has posted for good does not count).
  TimePoint firstUseDeadline() const;
  const std::vector<std::byte>& localAddress() const { return localAddress_; }
  Failure connect(std::span<const std::byte> remoteAddress);

  Failure send(BufferState& buffer, MessageKey key, const std::byte* data, std::size_t length,
               std::uint64_t remoteOffset);
  Failure receive(BufferState& buffer, std::uint64_t slot, std::byte* data, std::size_t length);
  // Posts an operation that stands in no place. If that fails its buffer hears of it, and it is released.
  void receiveOrFail(Operation* operation);
  // When the oldest unbound message of the slot arrived for which nothing is posted; nothing: there is none to receive.
  std::optional<TimePoint> oldestUnmatched(std::uint64_t slot) const;
  // Every message of the slot lands in the region. Failure is stored in `buffer`, for its waits to find.
  void receiveAlways(BufferState& buffer, std::uint64_t slot, std::byte* region, std::size_t length);
  // A put or get: `request` says what of the peer's memory, all but its number. `local` is this rank's side of it.
  // Waited for as a send; refusals of the peer are stored in `buffer`.
  Failure access(BufferState& buffer, const RemoteMessage& request, std::byte* local);
  // The peer's puts and gets do not touch this region of ours any more. May fail the connection.
  void conceal(std::uint64_t region);
  // A slot may have one receiving bound buffer. False: it has one.
  bool claimSlot(int slot) { return slots_.insert(slot).second; }
  void releaseSlot(int slot) { slots_.erase(slot); }

  // The buffer is not touched any more and nothing completes.
  void cancel(Operation* operation);

  // For RemoteTraffic and what it consists of.
  int rank() const;
  MessageChannel* channel() const { return channel_.get(); }
  void finish(Operation* operation);
  void failOperation(Operation* operation, const Failure& failure);

  // If this rank cannot complete a collective and the peer is there.
  void tellCollectiveFailed();

  // Where latencies are measured: a send or receive of `length` bytes, posted then, is complete.
  void recordSend(TimePoint postedAt, std::size_t length);
  void recordReceive(TimePoint postedAt, std::size_t length);

  bool connected() const { return state_ == State::kConnected; }
  // Connected, or it was until the peer closed or ended: what it sent before that can be received.
  bool hasMet() const { return state_ == State::kConnected || state_ == State::kPeerLeft; }
  const Failure& failure() const { return failure_; }
  // Any thread, no exclusive access needed.
  bool busyPoll() const { return busyPoll_.load(std::memory_order_relaxed); }
  void setBusyPoll(bool busyPoll) { busyPoll_.store(busyPoll, std::memory_order_relaxed); }

  // As over TCP after a timeout: what is unsent is dropped, no buffer is touched any more.
  void abort(Failure failure);
  // In good order.
  void close(const char* reason);

  // "rank 1 (10.0.0.2:4711)"
  std::string describePeer() const;

 private:
  // In their order, which comparisons rely on: each leads to the next one, or to one of the last two.
  enum class State : std::uint8_t { kDormant, kOpen, kConnected, kPeerLeft, kFailed, kClosed };

  void enter(State next);
  // Enters kPeerLeft, kFailed or kClosed; pending operations end. The first failure stays.
  void end(State how, Failure failure);
  // Whether the channel can still give what the peer has sent.
  bool mayReceive() const { return state_ > State::kDormant && state_ < State::kFailed; }
  void onSendComplete(OperationToken token) noexcept override;
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override;
  void onMessageAnnounced(MessageKey key, std::size_t length) noexcept override;
  void onStateChange(ChannelState state) noexcept override;
  // Tells `buffer` of its complete sends of this key, in the order posted. The buffer may be gone when it returns.
  void finishSends(BufferState& buffer, MessageKey key);
  // Those that were complete before the connection was.
  void finishEarlySends();
  bool firstOfItsKey(const Operation& operation) const;
  // The peer cannot complete a collective, and says why.
  void onPeersCollectiveFailed(const std::string& why);
  // Why a collective may post nothing here; null: it may.
  Failure refusal(MessageKey key);
  // In the order posted; not for persistent ones.
  void appendPending(Operation& operation);
  bool hasPending() const;  // a persistent receive does not count
  RemoteTraffic& remote();
  void channelFailed();
  Status post(Operation& receive);
  Failure postFailed(Operation* operation, OperationToken token, const char* what, const Error& error);
  Failure whyNot(const char* what, const Error& error) const;

  Group& group_;
  const ConnectMode mode_;
  State state_ = State::kDormant;
  std::unique_ptr<MessageChannel> channel_;
  std::vector<std::byte> localAddress_;
  ListHook pending_;
  std::set<int> slots_;
  std::unique_ptr<RemoteTraffic> remote_;  // null: no put or get yet, of either side
  Failure failure_;
  TimePoint waitingSince_{};  // on demand, until connected: hasPending since then
  FailureNotice notice_;
  TimePoint connectBegan_{};
  Failure peersCollectives_;  // why the peer will take part in no collective any more; null: it does
  OperationTimes::Times* peerLatencies_ = nullptr;  // null until connected, and where latencies are not measured
  std::atomic<bool> busyPoll_{false};
};

}  // namespace gloo_bypass::adapter
