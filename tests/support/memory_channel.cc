#include "tests/support/memory_channel.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gloo_bypass::test {
namespace {

constexpr std::size_t kAddressBytes = 16;

}  // namespace

MemoryChannel::~MemoryChannel() {
  close(/*abort=*/false);
  sender_.forget(id_);
}

std::vector<std::byte> MemoryChannel::localAddress() const {
  std::vector<std::byte> address(kAddressBytes);
  std::memcpy(address.data(), &transport_, 8);
  std::memcpy(address.data() + 8, &id_, 8);
  return address;
}

std::string MemoryChannel::describePeer() const { return "memory " + std::to_string(remoteTransport_); }

void MemoryChannel::send(Parcel parcel) {
  parcel.toChannel = remoteChannel_;
  parcel.fromTransport = transport_;
  counters_.packetsSent++;
  sender_.deliver(remoteTransport_, std::move(parcel));
}

Status MemoryChannel::closedStatus() const {
  if (state_ == ChannelState::kFailed) return error_;
  if (state_ == ChannelState::kPeerClosed) return {ErrorScope::kSession, ErrorCode::kPeerClosed, "the peer has closed"};
  if (state_ == ChannelState::kClosed) return {ErrorScope::kSession, ErrorCode::kCancelled, "closed"};
  return {};
}

Status MemoryChannel::connect(std::span<const std::byte> remoteAddress) {
  if (state_ != ChannelState::kUnconnected) {
    return {ErrorScope::kOperation, ErrorCode::kInvalidArgument, "already connected"};
  }
  if (remoteAddress.size() != kAddressBytes) {
    return {ErrorScope::kSession, ErrorCode::kConfiguration, "not the address of a memory transport"};
  }
  std::memcpy(&remoteTransport_, remoteAddress.data(), 8);
  std::memcpy(&remoteChannel_, remoteAddress.data() + 8, 8);
  state_ = ChannelState::kConnecting;
  Parcel hello;
  hello.type = ParcelType::kHello;
  const auto* dialect = reinterpret_cast<const std::byte*>(sender_.dialect().data());
  hello.payload.assign(dialect, dialect + sender_.dialect().size());
  send(std::move(hello));
  if (heardDialect_) greet();
  return {};
}

// Both hellos are under way or here. Ours went out first, so that the peer learns of a mismatch too.
void MemoryChannel::greet() {
  if (*heardDialect_ != sender_.dialect()) {
    fail(ErrorCode::kConfiguration, "dialect here is " + sender_.dialect() + ", there it is " + *heardDialect_, false);
    return;
  }
  state_ = ChannelState::kConnected;
  while (!early_.empty()) {
    const SendRequest request = early_.front();
    early_.pop_front();
    transmit(request);
  }
  if (observer_ != nullptr) observer_->onStateChange(state_);
}

Status MemoryChannel::postSend(const SendRequest& request) {
  if (Status status = closedStatus(); !status.ok()) return status;
  counters_.messagesSent++;
  counters_.payloadBytesSent += request.length;
  if (state_ == ChannelState::kConnected) {
    transmit(request);
  } else {
    early_.push_back(request);
  }
  return {};
}

void MemoryChannel::transmit(const SendRequest& request) {
  Parcel parcel;
  parcel.key = request.key;
  parcel.length = request.length;
  parcel.remoteOffset = request.remoteOffset;
  // Receives of one key complete in order: a short message does not overtake an offered one.
  const bool behindOffer = std::any_of(offered_.begin(), offered_.end(),
                                       [&](const auto& entry) { return entry.second.key == request.key; });
  if (behindOffer || request.length >= sender_.rendezvousBytes()) {
    parcel.type = ParcelType::kOffer;
    parcel.offer = nextOffer_++;
    offered_[parcel.offer] = request;
    counters_.rendezvousMessages++;
    send(std::move(parcel));
    return;
  }
  parcel.type = ParcelType::kEager;
  if (request.length > 0) parcel.payload.assign(request.data, request.data + request.length);
  counters_.eagerMessages++;
  send(std::move(parcel));
  if (observer_ != nullptr) observer_->onSendComplete(request.token);
}

Status MemoryChannel::postReceive(const ReceiveRequest& request) {
  Slot& s = slot(request.key);
  if (state_ == ChannelState::kPeerClosed) {
    // What had arrived can still be had. A persistent receive takes that and then is over.
    if (s.arrived.empty()) {
      tidy(request.key);
      return closedStatus();
    }
  } else if (Status status = closedStatus(); !status.ok()) {
    return status;
  }
  if (request.persistent) s.always = request;
  bool first = true;
  while (!s.arrived.empty() && (first || request.persistent)) {
    first = false;
    Arrived message = std::move(s.arrived.front());
    s.arrived.pop_front();
    if (!accept(request, message, request.key)) return closedStatus();
    if (state_ == ChannelState::kClosed) return {};  // by the observer; what was posted has been forgotten
  }
  if (first && !request.persistent) s.posted.push_back(request);
  tidy(request.key);
  return {};
}

void MemoryChannel::tidy(const MessageKey& key) {
  const auto it = slots_.find({key.kind, key.tag});
  if (it != slots_.end() && it->second.posted.empty() && it->second.arrived.empty() && !it->second.always) {
    slots_.erase(it);
  }
}

bool MemoryChannel::accept(const ReceiveRequest& request, Arrived& message, MessageKey key) {
  if (message.offer == 0) return land(request, message.remoteOffset, message.payload);
  granted_[message.offer] = {request, message.remoteOffset, false};
  Parcel grant;
  grant.type = ParcelType::kGrant;
  grant.key = key;
  grant.offer = message.offer;
  send(std::move(grant));
  return true;
}

bool MemoryChannel::land(const ReceiveRequest& request, std::uint64_t remoteOffset,
                         const std::vector<std::byte>& payload) {
  if (remoteOffset > request.capacity || payload.size() > request.capacity - remoteOffset) {
    fail(ErrorCode::kMessageTooLong,
         "message of " + std::to_string(payload.size()) + " bytes for a receive of " + std::to_string(request.capacity),
         /*tellPeer=*/true);
    return false;
  }
  if (!payload.empty()) std::memcpy(request.data + remoteOffset, payload.data(), payload.size());
  counters_.messagesReceived++;
  counters_.payloadBytesReceived += payload.size();
  if (observer_ != nullptr) observer_->onReceiveComplete(request.token, payload.size());
  return true;
}

void MemoryChannel::arrived(Arrived message, MessageKey key) {
  Slot& s = slot(key);
  if (s.always) {
    const ReceiveRequest request = *s.always;
    (void)accept(request, message, key);
    return;
  }
  if (!s.posted.empty()) {
    const ReceiveRequest request = s.posted.front();
    s.posted.pop_front();
    tidy(key);
    (void)accept(request, message, key);
    return;
  }
  const std::size_t length = message.length;
  s.arrived.push_back(std::move(message));
  if (observer_ != nullptr) observer_->onMessageAnnounced(key, length);
}

void MemoryChannel::payloadArrived(Parcel& parcel) {
  const auto granted = granted_.find(parcel.offer);
  if (granted != granted_.end()) {
    const Granted grant = granted->second;
    granted_.erase(granted);
    if (!grant.cancelled) (void)land(grant.request, grant.remoteOffset, parcel.payload);
    return;
  }
  // Sent without being asked for: its sender is closing.
  for (Arrived& message : slot(parcel.key).arrived) {
    if (message.offer != parcel.offer) continue;
    message.offer = 0;
    message.payload = std::move(parcel.payload);
  }
  tidy(parcel.key);
}

void MemoryChannel::receive(Parcel& parcel) {
  counters_.packetsReceived++;
  if (state_ == ChannelState::kFailed || state_ == ChannelState::kClosed || state_ == ChannelState::kPeerClosed) return;
  switch (parcel.type) {
    case ParcelType::kHello:
      heardDialect_.emplace(reinterpret_cast<const char*>(parcel.payload.data()), parcel.payload.size());
      if (state_ == ChannelState::kConnecting) greet();
      return;
    case ParcelType::kEager:
      arrived({0, parcel.payload.size(), parcel.remoteOffset, std::move(parcel.payload)}, parcel.key);
      return;
    case ParcelType::kOffer:
      arrived({parcel.offer, parcel.length, parcel.remoteOffset, {}}, parcel.key);
      return;
    case ParcelType::kGrant: {
      const auto offered = offered_.find(parcel.offer);
      if (offered == offered_.end()) return;  // withdrawn meanwhile
      const SendRequest request = offered->second;
      offered_.erase(offered);
      Parcel payload;
      payload.type = ParcelType::kPayload;
      payload.key = request.key;
      payload.offer = parcel.offer;
      if (request.length > 0) payload.payload.assign(request.data, request.data + request.length);
      send(std::move(payload));
      if (observer_ != nullptr) observer_->onSendComplete(request.token);
      return;
    }
    case ParcelType::kPayload:
      payloadArrived(parcel);
      return;
    case ParcelType::kWithdraw: {
      granted_.erase(parcel.offer);
      std::erase_if(slot(parcel.key).arrived, [&](const Arrived& m) { return m.offer == parcel.offer; });
      tidy(parcel.key);
      return;
    }
    case ParcelType::kClose:
      peerClosed();
      return;
    case ParcelType::kReset:
      fail(ErrorCode::kPeerClosed, "the peer aborted the connection", false);
      return;
    case ParcelType::kGone:
    case ParcelType::kCorrupt:
      return;  // the transport's own
  }
}

void MemoryChannel::peerClosed() {
  early_.clear();
  offered_.clear();
  granted_.clear();
  for (auto it = slots_.begin(); it != slots_.end();) {
    it->second.posted.clear();
    it->second.always.reset();
    std::erase_if(it->second.arrived, [](const Arrived& m) { return m.offer != 0; });
    it = it->second.arrived.empty() ? slots_.erase(it) : std::next(it);
  }
  state_ = ChannelState::kPeerClosed;
  if (observer_ != nullptr) observer_->onStateChange(state_);
}

bool MemoryChannel::cancelSend(OperationToken token) {
  const auto same = [&](const SendRequest& r) { return r.token == token; };
  if (std::erase_if(early_, same) > 0) return true;
  for (auto it = offered_.begin(); it != offered_.end(); ++it) {
    if (!same(it->second)) continue;
    Parcel withdraw;
    withdraw.type = ParcelType::kWithdraw;
    withdraw.offer = it->first;
    withdraw.key = it->second.key;
    offered_.erase(it);
    send(std::move(withdraw));
    return true;
  }
  return false;
}

bool MemoryChannel::cancelReceive(OperationToken token) {
  const auto same = [&](const ReceiveRequest& r) { return r.token == token; };
  bool found = false;
  for (auto& [offer, granted] : granted_) {
    if (same(granted.request)) granted.cancelled = found = true;
  }
  for (auto it = slots_.begin(); it != slots_.end(); ++it) {
    Slot& s = it->second;
    const bool here = std::erase_if(s.posted, same) > 0 || (s.always && same(*s.always));
    if (!here) continue;
    if (s.always && same(*s.always)) s.always.reset();
    if (s.posted.empty() && s.arrived.empty() && !s.always) slots_.erase(it);
    return true;
  }
  return found;
}

void MemoryChannel::close(bool abort) {
  if (state_ == ChannelState::kClosed) return;
  observer_ = nullptr;
  if (state_ == ChannelState::kConnected) {
    for (auto& [offer, request] : offered_) {
      if (abort) break;
      Parcel payload;
      payload.type = ParcelType::kPayload;
      payload.key = request.key;
      payload.offer = offer;
      if (request.length > 0) payload.payload.assign(request.data, request.data + request.length);
      send(std::move(payload));
    }
    Parcel farewell;
    farewell.type = abort ? ParcelType::kReset : ParcelType::kClose;
    send(std::move(farewell));
  }
  state_ = ChannelState::kClosed;
  forgetEverything();
}

void MemoryChannel::fail(ErrorCode code, std::string message, bool tellPeer) {
  if (state_ == ChannelState::kFailed || state_ == ChannelState::kClosed) return;
  if (tellPeer) {
    Parcel reset;
    reset.type = ParcelType::kReset;
    send(std::move(reset));
  }
  error_ = Error{ErrorScope::kSession, code, std::move(message)};
  state_ = ChannelState::kFailed;
  forgetEverything();
  if (observer_ != nullptr) observer_->onStateChange(state_);
}

void MemoryChannel::forgetEverything() {
  early_.clear();
  offered_.clear();
  granted_.clear();
  slots_.clear();
}

}  // namespace gloo_bypass::test
