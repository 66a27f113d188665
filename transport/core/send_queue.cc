#include "transport/core/send_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gloo_bypass {

void SendQueue::post(const SendRequest& request) {
  const SlotIndex slot = messages_.take();
  Message& message = messages_[slot];
  message.serial = nextSerial_++;
  message.token = request.token;
  message.key = request.key;
  message.data = request.data;
  message.length = request.length;
  message.remoteOffset = request.remoteOffset;
  message.sent = message.handedOver = message.eagerEnd = 0;
  message.frames = 0;
  message.state = State::kQueued;
  message.copied = message.completed = message.granted = false;
  message.confirmed = request.confirmed;
  ++unsent_;
  queue_.pushBack(slot);
  if (!longPath_ && message.length > config_.rendezvousBytes) return;
  // Behind messages that wait for room nothing small slips into the buffer: completions keep their order.
  if (longPath_ && !uncopied_.empty()) return waitForRoom(slot);
  if (!copy(message) && longPath_) waitForRoom(slot);
}

// A message that will never fit does not hold up others.
void SendQueue::waitForRoom(SlotIndex slot) {
  const Message& message = messages_[slot];
  if (message.length > config_.maxBufferBytes) return;
  pushCompacting(&uncopied_, {slot, message.serial}, &compactUncopiedAt_,
                 [this](const Reference& reference) { return waitsForRoom(reference); });
}

bool SendQueue::waitsForRoom(const Reference& reference) const {
  const Message& message = messages_[reference.slot];
  return message.serial == reference.serial && !message.copied && !message.completed && message.state != State::kFree;
}

bool SendQueue::starves(const Reference& reference) const {
  const Message& message = messages_[reference.slot];
  return message.serial == reference.serial && message.state == State::kAwaitingGrant;
}

// References to messages that went another way stay behind a front that does not move: they are dropped each time the
// queue has doubled.
template <typename Keep>
void SendQueue::pushCompacting(RingQueue<Reference>* queue, Reference reference, std::size_t* compactAt, Keep&& keep) {
  constexpr std::size_t kSmall = 64;
  if (queue->size() >= std::max(*compactAt, kSmall)) {
    for (std::size_t n = queue->size(); n > 0; --n) {
      const Reference oldest = queue->popFront();
      if (keep(oldest)) queue->pushBack(oldest);
    }
    *compactAt = 2 * queue->size();
  }
  queue->pushBack(reference);
}

bool SendQueue::copy(Message& message) {
  if (message.length > 0) {
    if (bufferedBytes_ >= bufferLimit_ || message.length > bufferLimit_ - bufferedBytes_) return false;
    message.buffer = pool_.take(message.length);
    bufferedBytes_ += message.buffer.capacity;
    std::memcpy(message.buffer.data.get(), message.data, message.length);
    message.data = message.buffer.data.get();
  }
  ++counters_->bufferedSends;
  message.copied = true;
  return true;
}

void SendQueue::complete(Message& message) {
  if (message.completed) return;
  message.completed = true;
  events_->pushBack({.type = SessionEvent::Type::kSendComplete, .token = message.token});
}

void SendQueue::copyWaiting() {
  while (!uncopied_.empty()) {
    const Reference first = uncopied_.front();
    if (waitsForRoom(first) && !copy(messages_[first.slot])) return;
    uncopied_.popFront();
  }
}

void SendQueue::setBufferLimit(std::size_t bytes) {
  bufferLimit_ = bytes;
  if (!uncopied_.empty()) copyWaiting();
}

void SendQueue::setLongPath(bool longPath) {
  if (longPath_ == longPath) return;
  longPath_ = longPath;
  if (!longPath) return uncopied_.clear();
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const SlotIndex slot = queue_.at(i);
    const Message& message = messages_[slot];
    if (message.state == State::kQueued && !message.copied) waitForRoom(slot);
  }
  copyWaiting();
}

bool SendQueue::introduce(Message& message) {
  if (nextId_ >= messageLimit_) return false;
  const std::uint64_t available = byteLimit_ > eagerSent_ ? byteLimit_ - eagerSent_ : 0;
  if (message.length <= config_.rendezvousBytes) {
    message.eagerEnd = message.length <= available ? message.length : 0;
  } else {
    message.eagerEnd = eagerWhateverLength() ? std::min(message.length, available) : 0;
  }
  eagerSent_ += message.eagerEnd;
  message.id = nextId_++;
  message.state = State::kIntroducing;
  ++counters_->messagesSent;
  ++(message.eagerEnd == message.length ? counters_->eagerMessages : counters_->rendezvousMessages);
  return true;
}

// An announced message is described by its announcement, another one by its first chunk.
void SendQueue::fillChunk(SlotIndex slot, std::uint64_t end, const ChunkSizes& sizes, bool granted, FramePlan* plan) {
  Message& message = messages_[slot];
  const bool described = message.sent > 0 || message.eagerEnd < message.length;
  const std::size_t largest = described ? sizes.later : sizes.whole;
  plan->type = wire::FrameType::kData;
  if (described && sizes.compact) plan->type = granted ? wire::FrameType::kGrantedChunk : wire::FrameType::kChunk;
  plan->message = slot;
  plan->offset = message.sent;
  plan->length = static_cast<std::uint16_t>(std::min<std::uint64_t>(end - message.sent, largest));
  plan->flags = granted ? wire::kFlagGranted : 0;
  message.sent += plan->length;
  ++message.frames;
  plan->ackRequested = message.sent == message.length && !completesWhenTaken(message);
  counters_->payloadBytesSent += plan->length;
}

// The front of queue_ has sent all it may without a grant.
void SendQueue::leaveQueue(SlotIndex slot) {
  queue_.popFront();
  Message& message = messages_[slot];
  if (message.sent == message.length) {
    message.state = State::kSent;
    --unsent_;
  } else if (message.granted) {
    message.state = State::kGranted;
    granted_.pushBack(slot);
  } else {
    message.state = State::kAwaitingGrant;
    if (eagerWhateverLength() || message.length <= config_.rendezvousBytes) {
      pushCompacting(&starved_, {slot, message.serial}, &compactStarvedAt_,
                     [this](const Reference& reference) { return starves(reference); });
    }
  }
}

// The oldest message that was announced only because credit had run out, and can go on without a grant now that there
// is some. Without this a sender that once fell behind would pay the grant's round trip for every message from then on.
SendQueue::Message* SendQueue::oldestStarved(const ChunkSizes& sizes) {
  while (!starved_.empty()) {
    const Reference first = starved_.front();
    if (starves(first)) {
      Message& message = messages_[first.slot];
      // Whole chunks only: crumbs of credit would make crumbs of datagrams.
      const std::uint64_t wanted = std::min<std::uint64_t>(sizes.later, message.length - message.sent);
      return byteLimit_ >= eagerSent_ + wanted ? &message : nullptr;
    }
    starved_.popFront();
  }
  return nullptr;
}

bool SendQueue::nextStarved(const ChunkSizes& sizes, FramePlan* plan) {
  Message* const message = oldestStarved(sizes);
  if (message == nullptr) return false;
  fillChunk(starved_.front().slot, message->length, sizes, false, plan);
  eagerSent_ += plan->length;
  if (message->sent < message->length) return true;
  message->state = State::kSent;
  --unsent_;
  awaiting_.erase(message->id);  // its grant, should one come, means nothing any more
  return true;
}

bool SendQueue::nextIntroduced(const ChunkSizes& sizes, FramePlan* plan) {
  while (!queue_.empty()) {
    const SlotIndex slot = queue_.front();
    Message& message = messages_[slot];
    if (message.state == State::kCancelled) {
      queue_.popFront();
      release(slot);
      continue;
    }
    if (message.state == State::kQueued) {
      if (!introduce(message)) return false;
      if (message.eagerEnd < message.length) {
        *plan = {.type = wire::FrameType::kAnnounce, .message = slot};
        ++message.frames;
        awaiting_.at(message.id) = slot;
        if (message.eagerEnd == 0) leaveQueue(slot);
        return true;
      }
    }
    fillChunk(slot, message.eagerEnd, sizes, false, plan);
    if (message.sent == message.eagerEnd) leaveQueue(slot);
    return true;
  }
  return false;
}

bool SendQueue::nextGranted(const ChunkSizes& sizes, FramePlan* plan) {
  if (granted_.empty()) return false;
  const SlotIndex slot = granted_.front();
  Message& message = messages_[slot];
  fillChunk(slot, message.length, sizes, true, plan);
  if (message.sent == message.length) {
    granted_.popFront();
    message.state = State::kSent;
    --unsent_;
  }
  return true;
}

bool SendQueue::next(const ChunkSizes& sizes, FramePlan* plan) {
  // By turns: announcements are not held up by a long granted message, nor that by a stream of small ones.
  grantedTurn_ = !grantedTurn_;
  if (grantedTurn_ && nextGranted(sizes, plan)) return true;
  return nextStarved(sizes, plan) || nextIntroduced(sizes, plan) || nextGranted(sizes, plan);
}

// A long message that goes without a grant, and that its own session has begun.
bool SendQueue::frontHasParts() {
  if (queue_.empty()) return false;
  const Message& front = messages_[queue_.front()];
  return front.state == State::kIntroducing && front.length > config_.rendezvousBytes;
}

bool SendQueue::nextPart(const ChunkSizes& sizes, FramePlan* plan) {
  if (!nextGranted(sizes, plan) && !nextStarved(sizes, plan) && (!frontHasParts() || !nextIntroduced(sizes, plan))) {
    return false;
  }
  ++partsUnderWay_;
  return true;
}

bool SendQueue::ready(const ChunkSizes& sizes) {
  if (!granted_.empty() || oldestStarved(sizes) != nullptr) return true;
  if (queue_.empty()) return false;
  return messages_[queue_.front()].state != State::kQueued || nextId_ < messageLimit_;
}

wire::MessageHeader SendQueue::describe(SlotIndex slot) const {
  const Message& message = messages_[slot];
  wire::MessageHeader header;
  header.id = message.id;
  header.tag = message.key.tag;
  header.kind = static_cast<std::uint8_t>(message.key.kind);
  header.totalLength = message.length;
  header.remoteOffset = message.remoteOffset;
  return header;
}

bool SendQueue::onGrant(std::uint64_t id) {
  if (id >= nextId_) return false;
  const SlotIndex* slot = awaiting_.find(id);
  if (slot == nullptr) return true;  // withdrawn meanwhile
  Message& message = messages_[*slot];
  message.granted = true;
  if (message.state == State::kAwaitingGrant) {
    message.state = State::kGranted;
    granted_.pushBack(*slot);
  }
  awaiting_.eraseFound(slot);
  return true;
}

void SendQueue::onLimits(std::uint64_t byteLimit, std::uint64_t messageLimit) {
  byteLimit_ = std::max(byteLimit_, byteLimit);
  messageLimit_ = std::max(messageLimit_, messageLimit);
}

void SendQueue::onFrameAcked(SlotIndex slot) {
  --messages_[slot].frames;
  finishIfDone(slot);
}

void SendQueue::onHandedOver(SlotIndex slot, std::size_t length) {
  Message& message = messages_[slot];
  message.handedOver += length;
  if (message.handedOver == message.length && completesWhenTaken(message)) complete(message);
}

void SendQueue::finishIfDone(SlotIndex slot) {
  Message& message = messages_[slot];
  if (message.frames != 0 || (message.state != State::kSent && message.state != State::kWithdrawn)) return;
  complete(message);
  release(slot);
  if (!uncopied_.empty()) copyWaiting();
}

void SendQueue::release(SlotIndex slot) {
  Message& message = messages_[slot];
  if (message.buffer.data) {
    bufferedBytes_ -= message.buffer.capacity;
    pool_.give(std::move(message.buffer));
    message.buffer = {};
  }
  message.state = State::kFree;
  message.data = nullptr;
  messages_.give(slot);
}

SendQueue::Cancel SendQueue::cancel(OperationToken token, std::uint64_t* id) {
  for (SlotIndex slot = 0; slot < messages_.size(); ++slot) {
    Message& message = messages_[slot];
    if (message.token != token || message.completed) continue;
    if (message.state == State::kFree || message.state == State::kCancelled) continue;
    const bool partlySent = message.sent != 0 || message.eagerEnd != 0 || message.state == State::kSent;
    if (partlySent && !message.copied && !adopt(message)) return Cancel::kPartlySent;
    if (message.copied) {
      message.completed = true;
      return Cancel::kGoesOn;
    }
    if (message.state == State::kQueued) {
      message.state = State::kCancelled;
      message.completed = true;
      --unsent_;
      return Cancel::kDone;
    }
    *id = message.id;
    if (message.state == State::kGranted) {
      // Granted, nothing sent yet: leave the queue of those being sent.
      for (std::size_t n = granted_.size(); n > 0; --n) {
        const SlotIndex other = granted_.popFront();
        if (other != slot) granted_.pushBack(other);
      }
    }
    awaiting_.erase(message.id);
    message.state = State::kWithdrawn;
    message.completed = true;
    message.data = nullptr;
    --unsent_;
    finishIfDone(slot);
    return Cancel::kWithdraw;
  }
  return Cancel::kUnknown;
}

// Beyond the buffer's limit, which is for what users send ahead.
bool SendQueue::adopt(Message& message) {
  const std::size_t limit = std::exchange(bufferLimit_, std::max(bufferLimit_, config_.maxBufferBytes));
  const bool copied = copy(message);
  bufferLimit_ = limit;
  return copied;
}

bool SendQueue::adoptAll() {
  bufferLimit_ = bufferedBytes_ + config_.maxBufferBytes;
  for (SlotIndex slot = 0; slot < messages_.size(); ++slot) {
    Message& message = messages_[slot];
    if (message.state == State::kFree || message.completed) continue;
    if (!message.copied && !copy(message)) return false;
    message.completed = true;  // nobody listens any more
  }
  uncopied_.clear();
  return true;
}

void SendQueue::clear() {
  messages_.clear();
  pool_.clear();
  queue_.clear();
  granted_.clear();
  uncopied_.clear();
  starved_.clear();
  awaiting_.clear();
  bufferedBytes_ = 0;
  unsent_ = partsUnderWay_ = 0;
}

}  // namespace gloo_bypass
