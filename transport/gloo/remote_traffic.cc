#include "transport/gloo/remote_traffic.h"

#include <sys/mman.h>

#include <utility>

#include <gloo/common/error.h>
#include <gloo/common/string.h>

#include "transport/gloo/connection.h"
#include "transport/gloo/group.h"

namespace gloo_bypass::adapter {
namespace {

constexpr unsigned kPurposeShift = 56;
// What a peer can have under way at most, each way: a request and a cancel for each of its operations, an answer and a
// go for each of ours.
constexpr std::size_t kMaxIncomingMessages = 4 * kMaxRemoteOperations;
constexpr std::size_t kMaxDropped = 2 * kMaxRemoteOperations;
// As many, and the answers that the peer has taken and the channel has not reported yet.
constexpr std::size_t kMaxOutgoingMessages = 2 * kMaxIncomingMessages;

}  // namespace

bool DropMemory::reserve(std::size_t length) {
  if (length == 0) return true;
  void* const mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  data_ = static_cast<std::byte*>(mapped);
  length_ = length;
  return true;
}

void DropMemory::release() {
  if (data_ != nullptr) (void)::munmap(data_, length_);
  data_ = nullptr;
  length_ = 0;
}

RemoteTraffic::RemoteTraffic(Group& group, Connection& connection)
    : group_(group), connection_(connection), requests_(*this, connection), service_(*this, group.exposedMemory()) {}

OperationToken RemoteTraffic::tokenOf(Purpose purpose, std::uint64_t number) {
  return kTokenBit | (OperationToken{static_cast<std::uint8_t>(purpose)} << kPurposeShift) | number;
}

OperationToken RemoteTraffic::tokenOf(RemoteRole role, std::uint64_t number) {
  return tokenOf(role == RemoteRole::kAsks ? Purpose::kAskedData : Purpose::kServedData, number);
}

RemoteTraffic::Purpose RemoteTraffic::purposeOf(OperationToken token) {
  return static_cast<Purpose>((token & ~kTokenBit) >> kPurposeShift);
}

std::uint64_t RemoteTraffic::numberOf(OperationToken token) {
  return token & ((OperationToken{1} << kPurposeShift) - 1);
}

bool RemoteTraffic::open() const { return connection_.channel() != nullptr && connection_.failure() == nullptr; }

bool RemoteTraffic::posted(const Status& status, const char* what) {
  if (status.ok()) return open();
  // Where the channel is over, it tells the connection; what came before the peer's end is still received then.
  if (open() && connection_.channel()->state() <= ChannelState::kConnected) {
    connection_.abort(makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " cannot ", what, connection_.describePeer(),
                                                 ": ", status.error().message)));
  }
  return false;
}

void RemoteTraffic::notePosted(OperationToken token, std::size_t length) {
  if (group_.latencies() != nullptr) posted_[token] = {monotonicNow(), length};
}

bool RemoteTraffic::send(const SendRequest& request) {
  if (!open()) return false;
  notePosted(request.token, request.length);
  return posted(connection_.channel()->postSend(request), "send to ");
}

bool RemoteTraffic::receive(const ReceiveRequest& request) {
  if (!open()) return false;
  notePosted(request.token, request.capacity);
  return posted(connection_.channel()->postReceive(request), "receive from ");
}

bool RemoteTraffic::tell(const RemoteMessage& message, std::span<const std::byte> payload) {
  if (outgoing_.size() >= kMaxOutgoingMessages) {
    violation("it asks for puts and gets, and does not take the answers");
    return false;
  }
  const OperationToken token = tokenOf(Purpose::kMessage, nextMessage_++);
  const std::vector<std::byte>& bytes = outgoing_[token] = encodeRemoteMessage(message, payload);
  return send({token, remoteControlKey(), bytes.data(), bytes.size(), /*remoteOffset=*/0});
}

bool RemoteTraffic::sendData(RemoteRole role, std::uint64_t number, MessageKey key, const std::byte* data,
                             std::size_t length) {
  return send({tokenOf(role, number), key, data, length, /*remoteOffset=*/0});
}

bool RemoteTraffic::receiveData(RemoteRole role, std::uint64_t number, MessageKey key, std::byte* data,
                                std::size_t length) {
  return receive({tokenOf(role, number), key, data, length, /*persistent=*/false});
}

bool RemoteTraffic::cancelSend(RemoteRole role, std::uint64_t number) {
  posted_.erase(tokenOf(role, number));
  return open() && connection_.channel()->cancelSend(tokenOf(role, number));
}

void RemoteTraffic::cancelReceive(RemoteRole role, std::uint64_t number) {
  posted_.erase(tokenOf(role, number));
  if (open()) (void)connection_.channel()->cancelReceive(tokenOf(role, number));
}

void RemoteTraffic::violation(const char* what) {
  if (!open()) return;
  connection_.abort(
      makeFailure(GLOO_ERROR_MSG("Rank ", group_.rank(), " closed its connection to ", connection_.describePeer(),
                                 ": the peer broke the protocol of remote keys: ", what)));
}

void RemoteTraffic::onSendComplete(OperationToken token) {
  if (const auto found = posted_.extract(token)) connection_.recordSend(found.mapped().at, found.mapped().length);
  if (purposeOf(token) == Purpose::kMessage) {
    outgoing_.erase(token);
  } else {
    onData(token, 0);
  }
}

void RemoteTraffic::onReceiveComplete(OperationToken token, std::size_t length) {
  if (const auto found = posted_.extract(token)) connection_.recordReceive(found.mapped().at, length);
  switch (purposeOf(token)) {
    case Purpose::kMessage: {
      const auto found = incoming_.find(token);
      if (found == incoming_.end()) return;
      const std::vector<std::byte> bytes = std::move(found->second);
      incoming_.erase(found);
      onMessage({bytes.data(), length});
      return;
    }
    case Purpose::kDropped:
      if (!toDrop_.empty()) toDrop_.pop_front();
      dropNext();
      return;
    default:
      onData(token, length);
  }
}

void RemoteTraffic::onData(OperationToken token, std::size_t length) {
  if (purposeOf(token) == Purpose::kAskedData) requests_.onData(numberOf(token), length);
  if (purposeOf(token) == Purpose::kServedData) service_.onData(numberOf(token), length);
}

void RemoteTraffic::onMessage(std::span<const std::byte> bytes) {
  const auto message = decodeRemoteMessage(bytes);
  if (!message) {
    violation("it sent a message that no correct peer sends");
    return;
  }
  const auto payload = bytes.subspan(kRemoteHeaderBytes);
  switch (message->type) {
    case RemoteMessageType::kPut:
    case RemoteMessageType::kGet:
      service_.onRequest(*message, payload);
      return;
    case RemoteMessageType::kCancel:
      service_.onCancel(message->operation);
      return;
    default:
      requests_.onAnswer(*message, payload);
  }
}

void RemoteTraffic::onAnnounced(MessageKey key, std::size_t length) {
  if (!open()) return;
  if (key == remoteControlKey()) {
    if (length < kRemoteHeaderBytes || length > kMaxRemoteMessageBytes || incoming_.size() >= kMaxIncomingMessages) {
      violation("it sent a message that no correct peer sends");
      return;
    }
    const OperationToken token = tokenOf(Purpose::kMessage, nextMessage_++);
    std::vector<std::byte>& bytes = incoming_[token];
    bytes.resize(length);
    (void)receive({token, key, bytes.data(), length, /*persistent=*/false});
    return;
  }
  const std::uint64_t number = key.tag & ((std::uint64_t{1} << kPurposeShift) - 1);
  if (key == putDataKey(number)) {
    service_.onUnexpectedData(number, length);
  } else if (key == getDataKey(number)) {
    requests_.onUnexpectedData(number, length);
  } else {
    violation("it sent a message for no purpose");
  }
}

void RemoteTraffic::drop(MessageKey key, std::size_t length) {
  if (toDrop_.size() >= kMaxDropped) {
    violation("it sent more data that nobody waits for than it can have had under way");
    return;
  }
  toDrop_.push_back({key, length});
  if (toDrop_.size() == 1) dropNext();
}

void RemoteTraffic::dropNext() {
  // Memory only as long as it is needed: this is rare.
  dropped_.release();
  if (toDrop_.empty() || !open()) return;
  const Dropped next = toDrop_.front();
  if (!dropped_.reserve(next.length)) {
    connection_.abort(makeFailure(
        GLOO_ERROR_MSG("Rank ", group_.rank(), " closed its connection to ", connection_.describePeer(), ": it sends ",
                       next.length, " bytes for a put or get that is over, and there is no memory to take them in")));
    return;
  }
  (void)receive({tokenOf(Purpose::kDropped, nextMessage_++), next.key, dropped_.data(), next.length,
                 /*persistent=*/false});
}

void RemoteTraffic::forget() {
  requests_.forget();
  service_.forget();
  outgoing_.clear();
  incoming_.clear();
  toDrop_.clear();
  dropped_.release();
  posted_.clear();
}

}  // namespace gloo_bypass::adapter
