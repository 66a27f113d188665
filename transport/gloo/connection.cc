#include "transport/gloo/connection.h"

#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/string.h>

#include "transport/gloo/address.h"
#include "transport/gloo/group.h"
#include "transport/gloo/remote_traffic.h"

namespace gloo_bypass::adapter {
namespace {

// The handshake of a pair without a timeout ends some day, so that a wait stays bounded (Gloo's own bound).
constexpr auto kLongestConnect = std::chrono::hours(100);
constexpr const char* kReceiveFrom = "receive from ";

}  // namespace

Connection::Connection(Group& group, int peer, std::chrono::milliseconds pairTimeout, ConnectMode mode)
    : peerRank(peer), timeout(pairTimeout), group_(group), mode_(mode) {}

Connection::~Connection() = default;

int Connection::rank() const { return group_.rank(); }

std::string Connection::describePeer() const {
  return channel_ == nullptr ? ::gloo::MakeString("rank ", peerRank)
                             : ::gloo::MakeString("rank ", peerRank, " (", channel_->describePeer(), ")");
}

void Connection::enter(State next) {
  const bool following = static_cast<int>(next) == static_cast<int>(state_) + 1;
  GLOO_BYPASS_CHECK(next > state_ && (following || next >= State::kFailed));
  state_ = next;
}

Failure Connection::open() {
  ChannelOptions options;
  options.localRank = group_.rank();
  options.peerRank = peerRank;
  options.connectTimeout = options.silenceTimeout = connectTimeout();
  auto channel = group_.transport().openChannel(options, this);
  if (!channel) {
    end(State::kFailed,
        makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot make a pair for rank ", peerRank, " over ",
                                   group_.transport().describe(), ": ", channel.error().message)));
    return failure_;
  }
  enter(State::kOpen);
  channel_ = std::move(channel).value();
  localAddress_ = channel_->localAddress();
  return nullptr;
}

Failure Connection::connect(std::span<const std::byte> remoteAddress) {
  if (failure_) return failure_;
  connectBegan_ = monotonicNow();
  const Status status = channel_->connect(remoteAddress);
  if (status.ok()) return nullptr;
  abort(makeFailure(
      GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot connect to ", describePeer(), ": ", status.error().message)));
  return failure_;
}

std::chrono::milliseconds Connection::connectTimeout() const {
  const bool bounded = timeout > std::chrono::milliseconds::zero() && timeout < kLongestConnect;
  return bounded ? timeout : kLongestConnect;
}

Failure Connection::wake() {
  if (state_ != State::kDormant) return failure_;
  if (Failure failure = open()) return failure;
  if (Failure failure = group_.addressExchange().begin(*this)) abort(std::move(failure));
  return failure_;
}

void Connection::connectTo(std::span<const char> address) {
  if (failure_) return;
  const std::vector<std::byte> remote = decodeAddress(address);
  if (remote.empty()) {
    abort(makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot connect to rank ", peerRank, ": its address (",
                                     address.size(), " bytes) is not one of this transport (",
                                     group_.transport().describe(),
                                     "): start every rank with the same GLOO_DEVICE_TRANSPORT and version")));
    return;
  }
  (void)connect(remote);  // kept in failure_
}

void Connection::failFirstUse(const std::string& storeError) {
  const std::string asked = storeError.empty() ? "" : " (store: " + storeError + ")";
  abort(makeFailure(GLOO_ERROR_MSG("Connect timeout ", describePeer(), ": rank ", group_.rank(), " waited ",
                                   connectTimeout().count(), "ms for rank ", peerRank,
                                   " to use this pair too; it may have ended", asked)));
}

TimePoint Connection::firstUseDeadline() const { return hasPending() ? waitingSince_ + connectTimeout() : kNever; }

void Connection::appendPending(Operation& operation) {
  if (onDemand() && !hasMet() && !hasPending()) waitingSince_ = monotonicNow();
  if (group_.latencies() != nullptr) operation.postedAt = monotonicNow();
  pending_.append(operation.byPlace);
}

bool Connection::hasPending() const {
  for (const Operation* o = pending_.next(); o != nullptr; o = o->byPlace.next()) {
    if (!o->persistent) return true;
  }
  return false;
}

Failure Connection::send(BufferState& buffer, MessageKey key, const std::byte* data, std::size_t length,
                         std::uint64_t remoteOffset) {
  (void)wake();
  if (Failure failure = refusal(key)) return failure;
  Operation* operation = group_.operations().acquire(buffer, Direction::kSend);
  operation->connection = this;
  operation->key = key;
  operation->length = length;
  buffer.of(Direction::kSend).pending++;
  appendPending(*operation);
  const OperationToken token = operation->token();
  // A program's own message is confirmed. A collective, and Gloo's older ones with their bound buffers, would wait for
  // a round trip after each of many short sends; and it fails with any of its ranks anyway.
  const bool confirmed = key.kind == MessageKind::kUnbound && !isCollective(key);
  const Status status = channel_->postSend({token, key, data, length, remoteOffset, confirmed});
  // On success it may be complete, and released, already.
  return status.ok() ? nullptr : postFailed(operation, token, "send to ", status.error());
}

Failure Connection::receive(BufferState& buffer, std::uint64_t slot, std::byte* data, std::size_t length) {
  (void)wake();
  const MessageKey key{MessageKind::kUnbound, slot};
  if (!oldestUnmatched(slot)) {
    if (Failure failure = refusal(key)) return failure;
  }
  Operation* operation = group_.operations().acquire(buffer, Direction::kReceive);
  operation->key = key;
  operation->data = data;
  operation->length = length;
  buffer.of(Direction::kReceive).pending++;
  const OperationToken token = operation->token();
  const Status status = post(*operation);
  return status.ok() ? nullptr : postFailed(operation, token, kReceiveFrom, status.error());
}

Status Connection::post(Operation& receive) {
  receive.connection = this;
  appendPending(receive);
  return channel_->postReceive({receive.token(), receive.key, receive.data, receive.length, /*persistent=*/false});
}

void Connection::receiveOrFail(Operation* operation) {
  const OperationToken token = operation->token();
  const Status status = post(*operation);
  // One that has ended by now has told its buffer, which may be gone.
  if (!status.ok() && operation->token() == token) failOperation(operation, whyNot(kReceiveFrom, status.error()));
}

std::optional<TimePoint> Connection::oldestUnmatched(std::uint64_t slot) const {
  if (channel_ == nullptr) return std::nullopt;
  return channel_->oldestUnmatched({MessageKind::kUnbound, slot});
}

void Connection::receiveAlways(BufferState& buffer, std::uint64_t slot, std::byte* region, std::size_t length) {
  (void)wake();
  const MessageKey key{MessageKind::kBound, slot};
  if (mayReceive()) {
    Operation* operation = group_.operations().acquire(buffer, Direction::kReceive);
    operation->persistent = true;
    operation->connection = this;
    operation->key = key;
    pending_.append(operation->byPlace);
    const OperationToken token = operation->token();
    const Status status = channel_->postReceive({token, key, region, length, /*persistent=*/true});
    if (!status.ok()) buffer.fail(postFailed(operation, token, kReceiveFrom, status.error()), key);
  }
  // After the messages that had arrived before the peer left, there will be none.
  if (failure_) buffer.fail(failure_, key);
}

Failure Connection::refusal(MessageKey key) {
  if (!isCollective(key)) return failure_;
  const Failure& why = failure_ ? failure_ : peersCollectives_;
  if (why) group_.collectiveFailed(why);
  return why;
}

RemoteTraffic& Connection::remote() {
  if (remote_ == nullptr) remote_ = std::make_unique<RemoteTraffic>(group_, *this);
  return *remote_;
}

Failure Connection::access(BufferState& buffer, const RemoteMessage& request, std::byte* local) {
  if (Failure failure = wake()) return failure;
  Operation* operation = group_.operations().acquire(buffer, Direction::kSend);
  operation->connection = this;
  operation->key = remoteControlKey();
  operation->remote = true;
  buffer.of(Direction::kSend).pending++;
  appendPending(*operation);
  remote().requests().ask(*operation, request, local);
  return nullptr;
}

void Connection::conceal(std::uint64_t region) {
  if (remote_ != nullptr) remote_->service().conceal(region);
}

// The channel refused an operation. If it failed meanwhile, the operation has ended with it.
Failure Connection::postFailed(Operation* operation, OperationToken token, const char* what, const Error& error) {
  if (operation->token() == token) {
    if (!operation->persistent) operation->buffer->of(operation->direction).pending--;
    group_.operations().release(operation);
  }
  return whyNot(what, error);
}

Failure Connection::whyNot(const char* what, const Error& error) const {
  // That a message does not fit says more than that its sender has gone since.
  if (failure_ && error.code != ErrorCode::kMessageTooLong) return failure_;
  return makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot ", what, describePeer(), ": ", error.message));
}

void Connection::cancel(Operation* operation) {
  // Out of the list first: the channel may fail on a half-sent message and end what is pending.
  operation->byPlace.unlink();
  if (!operation->persistent) operation->buffer->of(operation->direction).pending--;
  if (operation->remote) {
    remote().requests().withdraw(*operation);
  } else if (channel_ != nullptr && !operation->sent) {
    if (operation->direction == Direction::kSend) {
      (void)channel_->cancelSend(operation->token());
    } else {
      (void)channel_->cancelReceive(operation->token());
    }
  }
  group_.operations().release(operation);
}

void Connection::end(State how, Failure failure) {
  enter(how);
  if (!failure_) failure_ = std::move(failure);
  if (remote_ != nullptr) remote_->forget();
  while (Operation* operation = pending_.next()) failOperation(operation, failure_);
  group_.connectionFailed(*this);
}

void Connection::failOperation(Operation* operation, const Failure& failure) {
  BufferState& buffer = *operation->buffer;
  if (!operation->persistent) buffer.of(operation->direction).pending--;
  buffer.fail(failure, operation->key);
  group_.operations().release(operation);
}

void Connection::tellCollectiveFailed() {
  if (connected() && group_.failedCollective()) notice_.send(*channel_, *group_.failedCollective());
}

// Pending operations stay: some may still complete, and the program withdraws the rest.
void Connection::onPeersCollectiveFailed(const std::string& why) {
  group_.heardOfFailedCollective(why);
  peersCollectives_ = makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot complete a collective: it failed at ",
                                                 describePeer(), ": ", why));
  for (Operation* o = pending_.next(); o != nullptr; o = o->byPlace.next()) {
    if (isCollective(o->key)) o->buffer->fail(peersCollectives_, o->key);
  }
}

void Connection::abort(Failure failure) {
  if (state_ >= State::kFailed) return;
  if (channel_ != nullptr) channel_->close(/*abort=*/true);
  end(State::kFailed, std::move(failure));
}

void Connection::close(const char* reason) {
  if (state_ == State::kClosed) return;
  Failure failure =
      makeFailure(GLOO_ERROR_MSG("Socket closed: rank ", group_.rank(), " ", reason, " to ", describePeer()));
  if (channel_ != nullptr) channel_->close(/*abort=*/false);
  channel_.reset();
  end(State::kClosed, std::move(failure));
}

void Connection::onSendComplete(OperationToken token) noexcept {
  if (RemoteTraffic::owns(token)) {
    remote().onSendComplete(token);
    return;
  }
  if (FailureNotice::owns(token)) return;
  Operation& completed = Operation::fromToken(token);
  completed.sent = true;
  recordSend(completed.postedAt, completed.length);
  if (hasMet()) finishSends(*completed.buffer, completed.key);
}

void Connection::finishSends(BufferState& buffer, MessageKey key) {
  // Channels complete sends in any order, but a wait takes a completion for that of the send posted first.
  for (Operation* o = buffer.operations.next(); o != nullptr;) {
    Operation* following = o->byBuffer.next();
    if (o->direction == Direction::kSend && o->connection == this && o->key == key) {
      if (!o->sent) return;
      finish(o);  // after the last one the buffer may be gone
    }
    o = following;
  }
}

void Connection::finishEarlySends() {
  const auto early = [this]() -> Operation* {
    for (Operation* o = pending_.next(); o != nullptr; o = o->byPlace.next()) {
      if (o->direction == Direction::kSend && o->sent && firstOfItsKey(*o)) return o;
    }
    return nullptr;
  };
  // Each call ends at least the one that was found, and may end others; so the search begins anew.
  while (Operation* o = early()) finishSends(*o->buffer, o->key);
}

// No earlier send of the same buffer and key is pending.
bool Connection::firstOfItsKey(const Operation& operation) const {
  for (const Operation* o = operation.buffer->operations.next(); o != &operation; o = o->byBuffer.next()) {
    if (o->direction == Direction::kSend && o->connection == this && o->key == operation.key) return false;
  }
  return true;
}

void Connection::onReceiveComplete(OperationToken token, std::size_t length) noexcept {
  if (RemoteTraffic::owns(token)) {
    remote().onReceiveComplete(token, length);
    return;
  }
  if (FailureNotice::owns(token)) {
    onPeersCollectiveFailed(notice_.received());
    return;
  }
  Operation& completed = Operation::fromToken(token);
  if (!completed.persistent) recordReceive(completed.postedAt, length);
  finish(&completed);
}

void Connection::recordSend(TimePoint postedAt, std::size_t length) {
  if (OperationTimes* latencies = group_.latencies()) {
    latencies->addSend(peerLatencies_, length, monotonicNow() - postedAt);
  }
}

void Connection::recordReceive(TimePoint postedAt, std::size_t length) {
  if (OperationTimes* latencies = group_.latencies()) {
    latencies->addReceive(peerLatencies_, length, monotonicNow() - postedAt);
  }
}

void Connection::finish(Operation* operation) {
  Progress& progress = operation->buffer->of(operation->direction);
  progress.completions++;
  progress.rank = peerRank;
  if (operation->persistent) return;
  progress.pending--;
  group_.operations().release(operation);
}

void Connection::onMessageAnnounced(MessageKey key, std::size_t length) noexcept {
  if (key == FailureNotice::key()) {
    if (!notice_.receive(*channel_, length)) {
      abort(makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " closed its connection to ", describePeer(),
                                       ": it sent a notice that no correct peer sends")));
    }
    return;
  }
  // A bound message waits in the channel for its buffer to be made.
  if (isRemoteKey(key)) remote().onAnnounced(key, length);
  if (key.kind == MessageKind::kUnbound) group_.announced(*this, key.tag);
}

// A channel may still report what happens to it after this connection has ended: that changes nothing.
void Connection::onStateChange(ChannelState state) noexcept {
  switch (state) {
    case ChannelState::kConnected:
      if (state_ != State::kOpen) return;
      enter(State::kConnected);
      if (OperationTimes* latencies = group_.latencies()) {
        latencies->connect.add(monotonicNow() - connectBegan_);
        peerLatencies_ = latencies->peer(channel_->describePeer());
      }
      finishEarlySends();
      tellCollectiveFailed();
      break;
    case ChannelState::kPeerClosed:
      if (state_ >= State::kPeerLeft) return;
      end(connected() ? State::kPeerLeft : State::kFailed,
          makeFailure(GLOO_ERROR_MSG("Connection closed by peer: ", describePeer(), ", seen by rank ", group_.rank())));
      break;
    case ChannelState::kFailed:
      channelFailed();
      break;
    default:
      break;
  }
}

void Connection::channelFailed() {
  if (state_ >= State::kFailed) return;
  const Error& error = channel_->error();
  const State next = hasMet() && error.isLoss() ? State::kPeerLeft : State::kFailed;
  if (next <= state_) return;  // the peer had left before
  const char* what = hasMet() ? " lost its connection to " : " cannot connect to ";
  end(next, makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), what, describePeer(), ": ", error.message)));
}

}  // namespace gloo_bypass::adapter
