#include "transport/core/incoming_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/channel/receive_fit.h"

namespace gloo_bypass {

bool IncomingMessages::fail(ErrorCode code, std::string what) {
  error_ = {ErrorScope::kSession, code, std::move(what)};
  return false;
}

// The common case without any bookkeeping: a whole message in one frame, in order, its receive posted.
bool IncomingMessages::tryFastPath(const wire::MessageHeader& header, std::span<const std::byte> payload, bool* taken) {
  *taken = false;
  if (header.id != nextId_ || ahead_ != 0 || header.flags != 0 || header.chunkOffset != 0 ||
      header.totalLength != payload.size() || header.chunkLength != payload.size()) {
    return true;
  }
  const MessageKey name{static_cast<MessageKind>(header.kind), header.tag};
  Matcher::Key* key = matcher_.readyKey(name);
  if (key == nullptr || header.id >= messageLimit()) return true;
  *taken = true;
  const ReceiveRequest& receive = matcher_.firstReceive(*key);
  std::string problem = misfit(name, receive.capacity, receive.persistent, header.totalLength, header.remoteOffset);
  if (!problem.empty()) return fail(ErrorCode::kMessageTooLong, std::move(problem));
  if (!credit_.onReceived(payload.size())) return violation("the peer sent more eager payload than it had credit for");
  credit_.onConsumed(payload.size());
  gloo_bypass::place(receive, header.remoteOffset, 0, payload);
  ++nextId_;
  ++finished_;
  ++counters_->messagesReceived;
  counters_->payloadBytesReceived += payload.size();
  events_->pushBack({.type = SessionEvent::Type::kReceiveComplete, .token = receive.token, .length = payload.size()});
  matcher_.finishFirstReceive(key);
  return true;
}

SlotIndex IncomingMessages::make(std::uint64_t id) {
  const SlotIndex slot = matcher_.take();
  matcher_[slot].length = kMaxMessageBytes;  // no more is known
  matcher_[slot].body.id = id;
  known_.at(id) = slot;
  if (id >= nextId_) ++ahead_;
  return slot;
}

SlotIndex IncomingMessages::findOrMake(std::uint64_t id) {
  if (const SlotIndex* known = known_.find(id)) return *known;
  if (id >= nextId_ && id < messageLimit()) return make(id);
  violation("the peer sent a frame of a message that is over, or beyond its message credit");
  return kNoSlot;
}

SlotIndex IncomingMessages::findAndDescribe(const wire::MessageHeader& header) {
  if (header.kind > static_cast<std::uint8_t>(MessageKind::kBound) || header.totalLength > kMaxMessageBytes) {
    violation("the peer sent a message header with an unknown kind or an impossible length");
    return kNoSlot;
  }
  const MessageKey key{static_cast<MessageKind>(header.kind), header.tag};
  const SlotIndex slot = findOrMake(header.id);
  if (slot == kNoSlot) return kNoSlot;
  Message& message = matcher_[slot];
  Incoming& incoming = message.body;
  const bool contradicts =
      incoming.described
          ? message.key != key || message.length != header.totalLength || message.remoteOffset != header.remoteOffset
          : incoming.extent > header.totalLength || incoming.arrived > header.totalLength;
  if (contradicts) {
    violation("the peer sent frames of one message that contradict each other");
    return kNoSlot;
  }
  incoming.described = true;
  message.key = key;
  message.length = header.totalLength;
  message.remoteOffset = header.remoteOffset;
  return slot;
}

bool IncomingMessages::onData(TimePoint now, const wire::MessageHeader& header, std::span<const std::byte> payload) {
  bool taken;
  if (!tryFastPath(header, payload, &taken)) return false;
  if (taken) return true;
  if (header.chunkLength != payload.size() || (payload.empty() && header.totalLength != 0)) {
    return violation("the peer sent a chunk of another length than it says");
  }
  const SlotIndex slot = findAndDescribe(header);
  return slot != kNoSlot && take(now, slot, header.chunkOffset, (header.flags & wire::kFlagGranted) != 0, payload);
}

bool IncomingMessages::onChunk(TimePoint now, const wire::ChunkHeader& chunk, bool granted,
                               std::span<const std::byte> payload) {
  if (payload.empty()) return violation("the peer sent a chunk of no bytes");
  const SlotIndex slot = findOrMake(chunk.id);
  return slot != kNoSlot && take(now, slot, chunk.offset, granted, payload);
}

bool IncomingMessages::take(TimePoint now, SlotIndex slot, std::uint64_t offset, bool granted,
                            std::span<const std::byte> payload) {
  const Message& message = matcher_[slot];
  const Incoming& incoming = message.body;
  if (offset > message.length || payload.size() > message.length - offset) {
    return violation("the peer sent a chunk that lies outside its message");
  }
  if (incoming.withdrawn) return violation("the peer sent payload of a message it had withdrawn");
  if (payload.size() > message.length - incoming.arrived) return violation("the peer sent a chunk twice");
  if (granted && !incoming.granted) return violation("the peer sent payload that waits for a grant without one");
  if (!granted && !credit_.onReceived(payload.size())) {
    return violation("the peer sent more eager payload than it had credit for");
  }
  // A message that could be matched now needs no staging.
  if (!incoming.introduced && incoming.id == nextId_ && !introduceReady(now)) return false;
  return place(slot, offset, granted, payload);
}

bool IncomingMessages::place(SlotIndex slot, std::uint64_t offset, bool granted, std::span<const std::byte> payload) {
  Message& message = matcher_[slot];
  Incoming& incoming = message.body;
  incoming.arrived += payload.size();
  incoming.emptyArrived = payload.empty();
  counters_->payloadBytesReceived += payload.size();
  if (!message.matched) return stage(incoming, message.length, offset, payload);
  const std::uint64_t staged =
      std::min<std::uint64_t>(incoming.extent - std::min(incoming.extent, offset), payload.size());
  if (staged > 0) {
    // Eager payload that had overtaken this was staged, and it leaves before any grant.
    if (granted) return violation("the peer sent granted payload in front of eager payload");
    if (!stage(incoming, message.length, offset, payload.first(staged))) return false;
    placeStaged(message);
  }
  const auto rest = payload.subspan(staged);
  if (!message.orphaned) message.place(offset + staged, rest);
  if (!granted) credit_.onConsumed(rest.size());
  completeIfHere(slot);
  return true;
}

bool IncomingMessages::stage(Incoming& incoming, std::uint64_t length, std::uint64_t offset,
                             std::span<const std::byte> payload) {
  if (payload.empty()) return true;
  const std::uint64_t end = offset + payload.size(), extentBefore = incoming.extent;
  if (end > incoming.extent) {
    stagedExtents_ += end - incoming.extent;
    // Every byte below a message's highest one has been sent too, and so counts against the credit.
    if (stagedExtents_ > credit_.windowBytes())
      return violation("the peer sent eager payload with holes no sender leaves");
    incoming.extent = end;
  }
  if (incoming.extent > incoming.staging.capacity) {
    if (incoming.stagedBytes == 0) ++counters_->stagedReceives;
    const std::uint64_t wanted = std::min(length, std::max<std::uint64_t>(2 * incoming.staging.capacity, end));
    PooledBuffer larger = pool_.take(wanted);
    if (incoming.staging.data) std::memcpy(larger.data.get(), incoming.staging.data.get(), incoming.staging.capacity);
    stagingBytes_ = stagingBytes_ - incoming.staging.capacity + larger.capacity;
    pool_.give(std::move(incoming.staging));
    incoming.staging = std::move(larger);
  }
  incoming.stagedBytes += payload.size();
  // The peer may leave the hole as it is and send other parts twice: what lay here before is not its to have.
  if (offset > extentBefore) std::memset(incoming.staging.data.get() + extentBefore, 0, offset - extentBefore);
  std::memcpy(incoming.staging.data.get() + offset, payload.data(), payload.size());
  return true;
}

bool IncomingMessages::onAnnounce(TimePoint now, const wire::MessageHeader& header) {
  if (header.chunkOffset >= header.totalLength) return violation("the peer announced a message with nothing to grant");
  // Credit came before a grant, and all of the message has overtaken its announcement.
  if (header.id < nextId_ && known_.find(header.id) == nullptr) return true;
  const SlotIndex slot = findAndDescribe(header);
  if (slot == kNoSlot) return false;
  Message& message = matcher_[slot];
  Incoming& incoming = message.body;
  if (incoming.wantsGrant || incoming.granted) return violation("the peer announced a message twice");
  incoming.wantsGrant = true;
  if (incoming.withdrawn && incoming.introduced) {
    finish(incoming);  // the withdrawal had overtaken it
    matcher_.give(slot);
    return true;
  }
  if (!incoming.introduced && incoming.id == nextId_) return introduceReady(now);
  return !message.matched || grantIfWanted(incoming);
}

bool IncomingMessages::introduceReady(TimePoint now) {
  while (ahead_ > 0) {
    const SlotIndex* slot = known_.find(nextId_);
    if (slot == nullptr) return true;
    const Incoming& next = matcher_[*slot].body;
    if (!next.described && !next.withdrawn) return true;  // what describes it is still under way
    if (!introduce(now, *slot)) return false;
  }
  return true;
}

bool IncomingMessages::introduce(TimePoint now, SlotIndex slot) {
  Message& message = matcher_[slot];
  message.body.introduced = true;
  ++nextId_;
  --ahead_;
  if (message.body.withdrawn) {
    if (!message.body.described) return true;  // its announcement is still under way
    finish(message.body);
    matcher_.give(slot);
    return true;
  }
  message.arrived = now;
  if (matcher_.arrive(slot)) return begin(slot);
  events_->pushBack({.type = SessionEvent::Type::kMessageAnnounced, .key = message.key, .length = message.length});
  return true;
}

// The message has met its receive.
bool IncomingMessages::begin(SlotIndex slot) {
  Message& message = matcher_[slot];
  if (std::string problem = message.misfit(); !problem.empty()) {
    return fail(ErrorCode::kMessageTooLong, std::move(problem));
  }
  placeStaged(message);
  if (!grantIfWanted(message.body)) return false;
  completeIfHere(slot);
  return true;
}

// Of a matched message, once what is staged has no holes.
void IncomingMessages::placeStaged(Message& message) {
  Incoming& incoming = message.body;
  if (incoming.stagedBytes < incoming.extent) return;
  if (!message.orphaned) message.place(0, {incoming.staging.data.get(), static_cast<std::size_t>(incoming.extent)});
  unstage(incoming);
}

void IncomingMessages::unstage(Incoming& incoming) {
  credit_.onConsumed(incoming.stagedBytes);
  stagedExtents_ -= incoming.extent;
  stagingBytes_ -= incoming.staging.capacity;
  pool_.give(std::move(incoming.staging));
  incoming.staging = {};
  incoming.extent = incoming.stagedBytes = 0;
}

bool IncomingMessages::grantIfWanted(Incoming& incoming) {
  if (!incoming.wantsGrant || incoming.granted) return true;
  // A peer that withdraws what it announces, and acknowledges nothing, has room for announcements, but not for grants.
  if (controls_->size() >= kMostControls) return violation("the peer takes no grants for what it announces");
  incoming.granted = true;
  controls_->pushBack({wire::FrameType::kGrant, incoming.id});
  return true;
}

bool IncomingMessages::isHere(const Message& message) {
  const Incoming& incoming = message.body;
  return incoming.described && incoming.arrived == message.length && (message.length != 0 || incoming.emptyArrived);
}

void IncomingMessages::completeIfHere(SlotIndex slot) {
  if (isHere(matcher_[slot])) matcher_.complete(slot, [this](Message& message) { end(message); });
}

// A matched message is over.
void IncomingMessages::end(Message& message) {
  finish(message.body);
  if (message.orphaned) return;
  ++counters_->messagesReceived;
  events_->pushBack({.type = SessionEvent::Type::kReceiveComplete,
                     .token = message.receive.token,
                     .length = static_cast<std::size_t>(message.length)});
}

// The id is over: completed, thrown away or withdrawn.
void IncomingMessages::finish(Incoming& incoming) {
  unstage(incoming);
  known_.erase(incoming.id);
  ++finished_;
}

Status IncomingMessages::post(const ReceiveRequest& request) {
  const ReceiveRequest* waiting = matcher_.waiting(request.key);
  if (waiting != nullptr && (request.persistent || waiting->persistent)) {
    return {ErrorScope::kOperation, ErrorCode::kInvalidArgument,
            "slot " + std::to_string(request.key.tag) + " has a bound buffer, which takes no other receive beside it"};
  }
  while (const auto slot = matcher_.post(request)) {
    if (!begin(*slot)) return error_;
    if (!request.persistent) break;
  }
  return {};
}

bool IncomingMessages::cancel(OperationToken token) {
  bool found = matcher_.cancelWaiting(token);
  matcher_.forEachActiveOf(token, [&](SlotIndex slot) { matcher_[slot].orphaned = found = true; });
  return found;
}

bool IncomingMessages::onWithdraw(TimePoint now, std::uint64_t id) {
  const SlotIndex* known = known_.find(id);
  if (known == nullptr) {
    if (id < nextId_ || id >= messageLimit()) return violation("the peer withdrew a message that is over");
    matcher_[make(id)].body.withdrawn = true;
    return introduceReady(now);
  }
  const SlotIndex slot = *known;
  Incoming& incoming = matcher_[slot].body;
  if (incoming.arrived != 0 || incoming.withdrawn) return violation("the peer withdrew a message it had begun to send");
  incoming.withdrawn = true;
  if (!incoming.introduced) return introduceReady(now);
  finish(incoming);
  const auto met = matcher_.withdraw(slot, [this](Message& message) { end(message); });
  return !met || begin(*met);
}

void IncomingMessages::forgetReceives() {
  matcher_.forgetReceives(isHere, [this](Message& message) { finish(message.body); });
  FlatMap<std::uint64_t, SlotIndex> kept(known_.hash());
  known_.forEach([&](std::uint64_t id, SlotIndex slot) {
    Incoming& incoming = matcher_[slot].body;
    if (incoming.introduced && !incoming.withdrawn) {
      kept.at(id) = slot;
      return;
    }
    unstage(incoming);  // the matcher has not met it
    ++finished_;
    matcher_.give(slot);
  });
  known_ = std::move(kept);
}

void IncomingMessages::clear() {
  matcher_.clear();
  pool_.clear();
  known_.clear();
  ahead_ = 0;
  stagedExtents_ = 0;
  stagingBytes_ = 0;
}

}  // namespace gloo_bypass
