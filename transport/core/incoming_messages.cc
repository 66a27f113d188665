#include "transport/core/incoming_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/core/receive_fit.h"

namespace gloo_bypass {

bool IncomingMessages::fail(ErrorCode code, std::string what) {
  error_ = {ErrorScope::kSession, code, std::move(what)};
  return false;
}

void IncomingMessages::eraseIfEmpty(Key* key) {
  // A key is a short-lived thing: thousands of tags pass through here.
  if (!key->empty()) return;
  auto* cell = key;
  keys_.eraseFound(cell);
}

bool IncomingMessages::checkFits(const Receive& receive, const MessageKey& key, std::uint64_t length,
                                 std::uint64_t remoteOffset) {
  std::string problem = misfit(key, receive.capacity, receive.persistent, length, remoteOffset);
  return problem.empty() || fail(ErrorCode::kMessageTooLong, std::move(problem));
}

// The common case without any bookkeeping: a whole message in one frame, in order, its receive posted.
bool IncomingMessages::tryFastPath(const MessageHeader& header, std::span<const std::byte> payload, bool* taken) {
  *taken = false;
  if (header.id != nextId_ || ahead_ != 0 || header.flags != 0 || header.chunkOffset != 0 ||
      header.totalLength != payload.size() || header.chunkLength != payload.size()) {
    return true;
  }
  const MessageKey name{static_cast<MessageKind>(header.kind), header.tag};
  Key* key = keys_.find(name);
  if (key == nullptr || key->receives.empty() || !key->active.empty() || header.id >= messageLimit()) return true;
  *taken = true;
  const SlotIndex slot = key->receives.head;
  Receive& receive = receives_[slot];
  if (!checkFits(receive, name, header.totalLength, header.remoteOffset)) return false;
  if (!credit_.onReceived(payload.size())) return violation("the peer sent more eager payload than it had credit for");
  credit_.onConsumed(payload.size());
  if (!payload.empty()) {
    std::memcpy(receive.data + (receive.persistent ? header.remoteOffset : 0), payload.data(), payload.size());
  }
  ++nextId_;
  ++finished_;
  ++counters_->messagesReceived;
  counters_->payloadBytesReceived += payload.size();
  events_->pushBack({.type = SessionEvent::Type::kReceiveComplete, .token = receive.token, .length = payload.size()});
  if (!receive.persistent) {
    key->receives.takeFirst(receives_);
    receive.live = false;
    receives_.give(slot);
    eraseIfEmpty(key);
  }
  return true;
}

SlotIndex IncomingMessages::make(std::uint64_t id) {
  const SlotIndex slot = messages_.take();
  Message& message = messages_[slot];
  message = Message{};
  message.id = id;
  message.live = true;
  known_.at(id) = slot;
  if (id >= nextId_) ++ahead_;
  return slot;
}

SlotIndex IncomingMessages::findOrMake(const MessageHeader& header) {
  if (header.kind > static_cast<std::uint8_t>(MessageKind::kBound) || header.totalLength > kMaxMessageBytes) {
    violation("the peer sent a message header with an unknown kind or an impossible length");
    return kNoSlot;
  }
  const MessageKey key{static_cast<MessageKind>(header.kind), header.tag};
  SlotIndex* known = known_.find(header.id);
  if (known == nullptr && (header.id < nextId_ || header.id >= messageLimit())) {
    violation("the peer sent a frame of a message that is over, or beyond its message credit");
    return kNoSlot;
  }
  const SlotIndex slot = known != nullptr ? *known : make(header.id);
  Message& message = messages_[slot];
  if (!message.described) {
    message.described = true;
    message.key = key;
    message.length = header.totalLength;
    message.remoteOffset = header.remoteOffset;
  } else if (message.key != key || message.length != header.totalLength ||
             message.remoteOffset != header.remoteOffset) {
    violation("the peer sent frames of one message that contradict each other");
    return kNoSlot;
  }
  return slot;
}

bool IncomingMessages::onChunk(const MessageHeader& header, std::span<const std::byte> payload) {
  bool taken;
  if (!tryFastPath(header, payload, &taken)) return false;
  if (taken) return true;
  if (header.chunkLength != payload.size() || header.chunkOffset > header.totalLength ||
      payload.size() > header.totalLength - header.chunkOffset || (payload.empty() && header.totalLength != 0)) {
    return violation("the peer sent a chunk that lies outside its message");
  }
  const SlotIndex slot = findOrMake(header);
  if (slot == kNoSlot) return false;
  Message& message = messages_[slot];
  if (message.withdrawn) return violation("the peer sent payload of a message it had withdrawn");
  if (payload.size() > message.length - message.arrived) return violation("the peer sent a chunk twice");
  const bool granted = (header.flags & kFlagGranted) != 0;
  if (granted && !message.granted) return violation("the peer sent payload that waits for a grant without one");
  if (!granted && !credit_.onReceived(payload.size())) {
    return violation("the peer sent more eager payload than it had credit for");
  }
  // A message that could be matched now needs no staging.
  if (!message.introduced && message.id == nextId_ && !introduceReady()) return false;
  return place(message, header, payload);
}

bool IncomingMessages::place(Message& message, const MessageHeader& header, std::span<const std::byte> payload) {
  message.arrived += payload.size();
  message.emptyArrived = payload.empty();
  counters_->payloadBytesReceived += payload.size();
  if (!message.matched) return stage(message, header, payload);
  if (!message.discarded && !payload.empty()) {
    std::memcpy(message.destination + header.chunkOffset, payload.data(), payload.size());
  }
  if ((header.flags & kFlagGranted) == 0) credit_.onConsumed(payload.size());
  if (message.complete()) completeInOrder(keys_.find(message.key));
  return true;
}

bool IncomingMessages::stage(Message& message, const MessageHeader& header, std::span<const std::byte> payload) {
  if (payload.empty()) return true;
  const std::uint64_t end = header.chunkOffset + payload.size();
  if (end > message.extent) {
    stagedExtents_ += end - message.extent;
    // Every byte below a message's highest one has been sent too, and so counts against the credit.
    if (stagedExtents_ > credit_.windowBytes()) return violation("the peer sent eager payload with holes no sender leaves");
    message.extent = end;
  }
  if (message.extent > message.staging.capacity) {
    if (message.stagedBytes == 0) ++counters_->stagedReceives;
    const std::uint64_t wanted = std::min(message.length, std::max<std::uint64_t>(2 * message.staging.capacity, end));
    PooledBuffer larger = pool_.take(wanted);
    if (message.staging.data) std::memcpy(larger.data.get(), message.staging.data.get(), message.staging.capacity);
    stagingBytes_ = stagingBytes_ - message.staging.capacity + larger.capacity;
    pool_.give(std::move(message.staging));
    message.staging = std::move(larger);
  }
  message.stagedBytes += payload.size();
  std::memcpy(message.staging.data.get() + header.chunkOffset, payload.data(), payload.size());
  return true;
}

bool IncomingMessages::onAnnounce(const MessageHeader& header) {
  if (header.chunkOffset >= header.totalLength) return violation("the peer announced a message with nothing to grant");
  // Credit came before a grant, and all of the message has overtaken its announcement.
  if (header.id < nextId_ && known_.find(header.id) == nullptr) return true;
  const SlotIndex slot = findOrMake(header);
  if (slot == kNoSlot) return false;
  Message& message = messages_[slot];
  if (message.wantsGrant || message.granted) return violation("the peer announced a message twice");
  message.wantsGrant = true;
  if (message.withdrawn && message.introduced) {
    release(slot);  // the withdrawal had overtaken it
    return true;
  }
  if (!message.introduced && message.id == nextId_) return introduceReady();
  if (message.matched) grantIfWanted(message);
  return true;
}

bool IncomingMessages::introduceReady() {
  while (ahead_ > 0) {
    const SlotIndex* slot = known_.find(nextId_);
    if (slot == nullptr) return true;
    if (!introduce(*slot)) return false;
  }
  return true;
}

bool IncomingMessages::introduce(SlotIndex slot) {
  Message& message = messages_[slot];
  message.introduced = true;
  ++nextId_;
  --ahead_;
  if (message.withdrawn) {
    if (message.described) release(slot);  // else its announcement is still under way
    return true;
  }
  Key& key = keys_.at(message.key);
  if (key.receives.empty()) {
    key.unmatched.append(messages_, slot);
    events_->pushBack({.type = SessionEvent::Type::kMessageAnnounced, .key = message.key, .length = message.length});
    return true;
  }
  return match(&key, slot);
}

// The first posted receive of `key` takes the message, which is in no list.
bool IncomingMessages::match(Key* key, SlotIndex slot) {
  Message& message = messages_[slot];
  const SlotIndex receiveSlot = key->receives.head;
  Receive& receive = receives_[receiveSlot];
  if (!checkFits(receive, message.key, message.length, message.remoteOffset)) return false;
  message.receive = receive;
  message.matched = true;
  message.destination = receive.data + (receive.persistent ? message.remoteOffset : 0);
  if (!receive.persistent) {
    key->receives.takeFirst(receives_);
    receive.live = false;
    receives_.give(receiveSlot);
  }
  if (message.extent > 0) std::memcpy(message.destination, message.staging.data.get(), message.extent);
  unstage(message);
  grantIfWanted(message);
  key->active.append(messages_, slot);
  if (message.complete()) completeInOrder(key);
  return true;
}

void IncomingMessages::unstage(Message& message) {
  credit_.onConsumed(message.stagedBytes);
  stagedExtents_ -= message.extent;
  stagingBytes_ -= message.staging.capacity;
  pool_.give(std::move(message.staging));
  message.staging = {};
  message.extent = message.stagedBytes = 0;
}

void IncomingMessages::grantIfWanted(Message& message) {
  if (!message.wantsGrant || message.granted) return;
  message.granted = true;
  controls_->pushBack({FrameType::kGrant, message.id});
}

void IncomingMessages::completeInOrder(Key* key) {
  while (!key->active.empty() && messages_[key->active.head].complete()) {
    const SlotIndex slot = key->active.takeFirst(messages_);
    const Message& message = messages_[slot];
    if (!message.discarded) {
      ++counters_->messagesReceived;
      events_->pushBack({.type = SessionEvent::Type::kReceiveComplete,
                         .token = message.receive.token,
                         .length = static_cast<std::size_t>(message.length)});
    }
    release(slot);
  }
  eraseIfEmpty(key);
}

void IncomingMessages::release(SlotIndex slot) {
  Message& message = messages_[slot];
  unstage(message);
  known_.erase(message.id);
  ++finished_;
  message.live = false;
  messages_.give(slot);
}

Status IncomingMessages::post(const ReceiveRequest& request) {
  const MessageKey name = request.key;
  Key* key = &keys_.at(name);
  if (!key->receives.empty() && (request.persistent || receives_[key->receives.head].persistent)) {
    return {ErrorScope::kOperation, ErrorCode::kInvalidArgument,
            "slot " + std::to_string(name.tag) + " has a bound buffer, which takes no other receive beside it"};
  }
  const SlotIndex slot = receives_.take();
  receives_[slot] = Receive{request.token, name, request.data, request.capacity, request.persistent, true, kNoSlot};
  key->receives.append(receives_, slot);
  while (key != nullptr && !key->receives.empty() && !key->unmatched.empty()) {
    if (!match(key, key->unmatched.takeFirst(messages_))) return error_;
    key = keys_.find(name);
  }
  return {};
}

bool IncomingMessages::hasComplete(MessageKey name) {
  const Key* key = keys_.find(name);
  return key != nullptr && !key->unmatched.empty() && messages_[key->unmatched.head].complete();
}

bool IncomingMessages::cancel(OperationToken token) {
  bool found = false;
  for (SlotIndex slot = 0; slot < receives_.size(); ++slot) {
    Receive& receive = receives_[slot];
    if (!receive.live || receive.token != token) continue;
    Key* key = keys_.find(receive.key);
    key->receives.remove(receives_, slot);
    receive.live = false;
    receives_.give(slot);
    eraseIfEmpty(key);
    found = true;
    break;
  }
  for (SlotIndex slot = 0; slot < messages_.size(); ++slot) {
    Message& message = messages_[slot];
    if (!message.live || !message.matched || message.discarded || message.receive.token != token) continue;
    message.discarded = true;  // the rest arrives into nowhere
    message.destination = nullptr;
    found = true;
  }
  return found;
}

bool IncomingMessages::onWithdraw(std::uint64_t id) {
  const SlotIndex* known = known_.find(id);
  if (known == nullptr) {
    if (id < nextId_ || id >= messageLimit()) return violation("the peer withdrew a message that is over");
    messages_[make(id)].withdrawn = true;
    return introduceReady();
  }
  const SlotIndex slot = *known;
  Message& message = messages_[slot];
  if (message.arrived != 0 || message.withdrawn) return violation("the peer withdrew a message it had begun to send");
  message.withdrawn = true;
  if (!message.introduced) return introduceReady();
  Key* key = keys_.find(message.key);
  if (!message.matched) {
    key->unmatched.remove(messages_, slot);
    release(slot);
    eraseIfEmpty(key);
    return true;
  }
  key->active.remove(messages_, slot);
  const Receive receive = message.receive;
  const bool back = !message.discarded && !receive.persistent;
  release(slot);
  if (back) return returnReceive(key, receive);
  completeInOrder(key);
  return true;
}

// A receive whose message was withdrawn is the first of its key again.
bool IncomingMessages::returnReceive(Key* key, const Receive& receive) {
  const SlotIndex slot = receives_.take();
  receives_[slot] = receive;
  receives_[slot].live = true;
  receives_[slot].next = key->receives.head;
  if (key->receives.empty()) key->receives.tail = slot;
  key->receives.head = slot;
  const MessageKey name = receive.key;
  while (key != nullptr && !key->receives.empty() && !key->unmatched.empty()) {
    if (!match(key, key->unmatched.takeFirst(messages_))) return false;
    key = keys_.find(name);
  }
  if (key != nullptr) completeInOrder(key);
  return true;
}

void IncomingMessages::forgetReceives() {
  for (SlotIndex slot = 0; slot < messages_.size(); ++slot) {
    Message& message = messages_[slot];
    if (!message.live || (message.introduced && !message.matched && message.complete())) continue;
    if (Key* key = message.introduced ? keys_.find(message.key) : nullptr; key != nullptr) {
      (message.matched ? key->active : key->unmatched).remove(messages_, slot);
      eraseIfEmpty(key);
    }
    release(slot);
  }
  for (SlotIndex slot = 0; slot < receives_.size(); ++slot) {
    Receive& receive = receives_[slot];
    if (!receive.live) continue;
    Key* key = keys_.find(receive.key);
    key->receives.remove(receives_, slot);
    eraseIfEmpty(key);
    receive.live = false;
    receives_.give(slot);
  }
}

void IncomingMessages::clear() {
  messages_.clear();
  receives_.clear();
  pool_.clear();
  keys_.clear();
  known_.clear();
  ahead_ = 0;
  stagedExtents_ = 0;
  stagingBytes_ = 0;
}

}  // namespace gloo_bypass
