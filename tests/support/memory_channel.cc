#include "tests/support/memory_channel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/progress/progress_engine.h"

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

// Both hellos are under way or here. Ours left first, so that the peer learns of a mismatch too.
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
  const bool behindOffer =
      std::any_of(offered_.begin(), offered_.end(), [&](const auto& entry) { return entry.second.key == request.key; });
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
  // Messages that had arrived can still be received. A persistent receive takes them and then ends.
  const Status before = closedStatus();
  if (!before.ok() && matcher_.oldestUnmatched(request.key) == nullptr) return before;
  while (const auto slot = matcher_.post(request)) {
    if (Status status = begin(*slot); !status.ok()) return status;
    if (before.ok() && state_ == ChannelState::kFailed) return closedStatus();
    if (state_ == ChannelState::kClosed) return {};  // closed by the observer; posted operations are forgotten
    if (!request.persistent) break;
    if (!before.ok() && matcher_.oldestUnmatched(request.key) == nullptr) break;
  }
  return {};
}

Status MemoryChannel::begin(SlotIndex slot) {
  Matcher::Message& message = matcher_[slot];
  if (message.body.offer == 0) {
    const std::vector<std::byte> payload = std::move(message.body.payload);
    return land(slot, payload);
  }
  Parcel grant;
  grant.type = ParcelType::kGrant;
  grant.key = message.key;
  grant.offer = message.body.offer;
  send(std::move(grant));
  return {};
}

Status MemoryChannel::land(SlotIndex slot, const std::vector<std::byte>& payload) {
  Matcher::Message& message = matcher_[slot];
  if (!message.orphaned) {
    message.length = payload.size();
    if (std::string problem = message.misfit(); !problem.empty()) {
      fail(ErrorCode::kMessageTooLong, problem, /*tellPeer=*/true);
      return {ErrorScope::kSession, ErrorCode::kMessageTooLong, std::move(problem)};
    }
    // In odd runs, the last one first: no order is promised.
    constexpr std::size_t kRun = 4099;
    for (std::size_t end = payload.size(); end > 0;) {
      const std::size_t run = std::min(end, kRun);
      end -= run;
      message.place(end, std::span(payload).subspan(end, run));
    }
  }
  matcher_.complete(slot, [this](const Matcher::Message& done) { end(done); });
  return {};
}

void MemoryChannel::end(const Matcher::Message& message) {
  if (message.orphaned) return;
  counters_.messagesReceived++;
  counters_.payloadBytesReceived += message.length;
  if (observer_ != nullptr) observer_->onReceiveComplete(message.receive.token, message.length);
}

void MemoryChannel::arrived(const Parcel& parcel, Incoming incoming) {
  const SlotIndex slot = matcher_.take();
  Matcher::Message& message = matcher_[slot];
  message.key = parcel.key;
  message.length = parcel.length;
  message.remoteOffset = parcel.remoteOffset;
  message.arrived = monotonicNow();
  message.body = std::move(incoming);
  if (message.body.offer != 0) offers_[message.body.offer] = slot;
  if (matcher_.arrive(slot)) return (void)begin(slot);
  if (observer_ != nullptr) observer_->onMessageAnnounced(parcel.key, parcel.length);
}

void MemoryChannel::payloadArrived(Parcel& parcel) {
  const auto offer = offers_.find(parcel.offer);
  if (offer == offers_.end()) return;
  const SlotIndex slot = offer->second;
  offers_.erase(offer);
  if (matcher_[slot].matched) return (void)land(slot, parcel.payload);
  // Sent without a grant: its sender is closing.
  matcher_[slot].body = {0, std::move(parcel.payload)};
}

void MemoryChannel::withdrawn(std::uint64_t offer) {
  const auto found = offers_.find(offer);
  if (found == offers_.end()) return;
  const SlotIndex slot = found->second;
  offers_.erase(found);
  const auto met = matcher_.withdraw(slot, [this](const Matcher::Message& done) { end(done); });
  if (met && state_ == ChannelState::kConnected) (void)begin(*met);
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
      arrived(parcel, {0, std::move(parcel.payload)});
      return;
    case ParcelType::kOffer:
      arrived(parcel, {parcel.offer, {}});
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
    case ParcelType::kWithdraw:
      withdrawn(parcel.offer);
      return;
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
  forgetUnderWay();
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
  bool found = matcher_.cancelWaiting(token);
  matcher_.forEachActiveOf(token, [&](SlotIndex slot) { matcher_[slot].orphaned = found = true; });
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
  error_.isLoss() ? forgetUnderWay() : forgetEverything();
  if (observer_ != nullptr) observer_->onStateChange(state_);
}

void MemoryChannel::forgetUnderWay() {
  early_.clear();
  offered_.clear();
  offers_.clear();
  matcher_.forgetReceives([](const Matcher::Message& message) { return message.body.offer == 0; });
}

void MemoryChannel::forgetEverything() {
  forgetUnderWay();
  matcher_.clear();
}

}  // namespace gloo_bypass::test
