#include "tools/simulation/core/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gloo_bypass::sim {
namespace {

constexpr std::byte kUntouched{0xa5};
constexpr std::byte kScribble{0xee};  // written over a buffer that the session has given back
constexpr std::size_t kGuardBytes = 64;
constexpr std::size_t kMaxFaults = 8;
constexpr OperationToken kPersistentToken = 1'000'000'000;
constexpr OperationToken kWithdrawnToken = 2'000'000'000;  // + index

enum Tag : std::uint64_t { kAnnouncedTag = kOrdinaryKeys, kWithdrawnTag };

// Adds bytes to an untouched buffer, where they give their own values if they come once.
BytesConsumer addingTo(std::vector<std::byte>& buffer) {
  const auto add = [](void* context, std::size_t offset, std::span<const std::byte> bytes) noexcept {
    std::byte* to = static_cast<std::byte*>(context) + offset;
    for (const std::byte byte : bytes) {
      *to = static_cast<std::byte>(static_cast<unsigned>(*to) + static_cast<unsigned>(byte) -
                                   static_cast<unsigned>(kUntouched));
      ++to;
    }
  };
  return {add, buffer.data()};
}

bool all(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

}  // namespace

void fillPattern(std::span<std::byte> buffer, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < buffer.size(); i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(buffer.data() + i, &word, std::min<std::size_t>(8, buffer.size() - i));
  }
}

bool matchesPattern(std::span<const std::byte> buffer, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < buffer.size(); i += 8) {
    const std::uint64_t word = random.next();
    if (std::memcmp(buffer.data() + i, &word, std::min<std::size_t>(8, buffer.size() - i)) != 0) return false;
  }
  return true;
}

Conversation::Conversation(Simulation& simulation, Host& sender, Host& receiver, const TrafficModel& model,
                           std::uint64_t seed)
    : Conversation(simulation, sender, receiver, planTraffic(model, seed), model.lossless, seed) {}

Conversation::Conversation(Simulation& simulation, Host& sender, Host& receiver,
                           const std::vector<PlannedMessage>& plan, bool lossless, std::uint64_t seed)
    : simulation_(simulation), sender_(sender), receiver_(receiver), lossless_(lossless), random_(mixBits(seed)) {
  // Tags use all 64 bits, and the persistent key has the tag of an ordinary one: only the kind tells them apart.
  tagBase_ = random_.next();
  for (const PlannedMessage& planned : plan) {
    Message& m = messages_.emplace_back();
    static_cast<PlannedMessage&>(m) = planned;
    m.messageKey = keyOf(planned);
    m.pattern = random_.next();
  }
  layOutRegion();
}

MessageKey Conversation::keyOf(const PlannedMessage& message) const {
  switch (message.kind) {
    case KeyKind::kAnnounced:
      return {MessageKind::kUnbound, tagBase_ + kAnnouncedTag};
    case KeyKind::kPersistent:
      return {MessageKind::kBound, tagBase_};
    case KeyKind::kWithdrawn:
      return {MessageKind::kUnbound, tagBase_ + kWithdrawnTag + message.key};
    case KeyKind::kOrdinary:
      break;
  }
  return {MessageKind::kUnbound, tagBase_ + message.key};
}

void Conversation::layOutRegion() {
  std::size_t end = 0;
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    Message& m = messages_[i];
    if (m.kind != KeyKind::kPersistent) continue;
    end += kGuardBytes;
    m.remoteOffset = end;
    end += m.length;
    persistentOrder_.push_back(i);
  }
  if (end > 0) region_.assign(end + kGuardBytes, kUntouched);
}

void Conversation::start() {
  // A bound buffer is made before its peer can know of it.
  if (!region_.empty()) postPersistent();
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    Message& m = messages_[i];
    ++openSends_;
    ++openReceives_;
    m.sendOpen = true;
    m.sendBuffer.resize(m.length);
    fillPattern(m.sendBuffer, m.pattern);
    simulation_.after(m.sendAt, [this, i] { postSend(i); });
    if (m.kind == KeyKind::kOrdinary) simulation_.after(m.receiveAt, [this, i] { postReceive(i); });
    if (m.kind == KeyKind::kWithdrawn) {
      simulation_.after(m.receiveAt / 2, [this, i] { postWithdrawn(i); });
      simulation_.after(m.receiveAt, [this, i] { withdraw(i); });
    }
  }
}

void Conversation::postSend(std::size_t index) {
  sender_.operate([this, index](Session& session, TimePoint) {
    Message& m = messages_[index];
    const SendRequest request{index, m.messageKey, m.sendBuffer.data(), m.length, m.remoteOffset, m.confirmed};
    if (m.kind == KeyKind::kAnnounced) announcedOrder_.push_back(index);
    if (const Status posted = session.postSend(request); !posted.ok()) {
      return refused(sender_, "postSend", index, posted);
    }
    m.sendPosted = true;
    if (!m.cancelSend) return;
    // Nothing can have left yet, so the receiver must never see it, unless the session has copied it.
    m.sendCancelled = session.cancelSend(index);
    std::fill(m.sendBuffer.begin(), m.sendBuffer.end(), kScribble);
    m.sendOpen = false;
    --openSends_;
    if (!m.sendCancelled) return;
    announcedOrder_.pop_back();
    --openReceives_;
  });
}

void Conversation::postReceive(std::size_t index) {
  receiver_.operate([this, index](Session& session, TimePoint) {
    Message& m = messages_[index];
    m.receiveBuffer.assign(m.length + m.room + kGuardBytes, kUntouched);
    const Status posted = session.postReceive({.token = index,
                                               .key = m.messageKey,
                                               .data = m.receiveBuffer.data(),
                                               .capacity = m.length + m.room,
                                               .consumer = m.consumes ? addingTo(m.receiveBuffer) : BytesConsumer{}});
    if (!posted.ok()) refused(receiver_, "postReceive", index, posted);
  });
}

void Conversation::postPersistent() {
  receiver_.operate([this](Session& session, TimePoint) {
    const MessageKey key{MessageKind::kBound, tagBase_};
    const Status posted = session.postReceive({kPersistentToken, key, region_.data(), region_.size(), true});
    if (!posted.ok()) refused(receiver_, "persistent postReceive", 0, posted);
  });
}

void Conversation::postWithdrawn(std::size_t index) {
  receiver_.operate([this, index](Session& session, TimePoint) {
    Message& m = messages_[index];
    m.withdrawnBuffer.assign(m.length + m.room + kGuardBytes, kUntouched);
    m.withdrawnOpen = true;
    const Status posted = session.postReceive({.token = kWithdrawnToken + index,
                                               .key = m.messageKey,
                                               .data = m.withdrawnBuffer.data(),
                                               .capacity = m.length + m.room,
                                               .consumer = m.consumes ? addingTo(m.withdrawnBuffer) : BytesConsumer{}});
    if (!posted.ok()) refused(receiver_, "postReceive (withdrawn)", index, posted);
  });
}

// A receive cancelled before its message arrives leaves no trace, and the message is announced. Later, the message's
// bytes may be dropped. Either way the buffer does not change from now on.
void Conversation::withdraw(std::size_t index) {
  receiver_.operate([this, index](Session& session, TimePoint) {
    Message& m = messages_[index];
    const bool cancelled = session.cancelReceive(kWithdrawnToken + index);
    if (!m.withdrawnOpen) {
      if (cancelled) fault("cancelReceive of a completed receive returned true");
      return;
    }
    const SessionState state = session.state();
    const bool goesOn = state == SessionState::kConnecting || state == SessionState::kEstablished;
    if (!cancelled && !goesOn && state != SessionState::kPeerClosed) return;
    m.withdrawnOpen = false;
    if (!cancelled && goesOn) {
      // It was complete, and its completion does not come any more.
      m.receiveBuffer.swap(m.withdrawnBuffer);
      return judge(m, m.receiveBuffer, m.length);
    }
    m.withdrawnCopy = m.withdrawnBuffer;
    m.withdrawnCancelled = true;
    --openReceives_;
  });
}

void Conversation::onSenderEvent(const SessionEvent& event) {
  if (event.type != SessionEvent::Type::kSendComplete) return;
  if (event.token >= messages_.size() || !messages_[event.token].sendOpen) {
    fault(fmt::format("send {} completed without being open", event.token));
    return;
  }
  Message& m = messages_[event.token];
  completedBytes_ += m.length;
  if (completedBytes_ > sender_.session().counters().payloadBytesSent) {
    fault(fmt::format("send {} completed before all of it had gone out", event.token));
  }
  if (m.confirmed && !lossless_) confirmedBytes_ += m.length;
  // A receiver that has called close() acknowledges what it throws away.
  const SessionState there = receiver_.session().state();
  const bool discards = there == SessionState::kClosing || there == SessionState::kClosed;
  if (!discards && confirmedBytes_ > receiver_.session().counters().payloadBytesReceived) {
    fault(fmt::format("send {} was confirmed before it had arrived", event.token));
  }
  m.sendOpen = false;
  --openSends_;
  std::fill(m.sendBuffer.begin(), m.sendBuffer.end(), kScribble);
}

void Conversation::onReceiverEvent(const SessionEvent& event) {
  if (event.type == SessionEvent::Type::kReceiveComplete) onReceived(event.token, event.length);
  if (event.type == SessionEvent::Type::kMessageAnnounced) onAnnounced(event.key, event.length);
}

void Conversation::onReceived(OperationToken token, std::size_t length) {
  if (token == kPersistentToken) {
    onPersistentReceived(length);
    return;
  }
  const bool withdrawn = token >= kWithdrawnToken;
  const std::size_t index = withdrawn ? token - kWithdrawnToken : token;
  if (index >= messages_.size()) {
    fault(fmt::format("receive of unknown token {} completed", token));
    return;
  }
  Message& m = messages_[index];
  if (withdrawn) {
    if (!m.withdrawnOpen) {
      fault(fmt::format("receive {} completed after it was cancelled", index));
      return;
    }
    m.withdrawnOpen = false;
    m.receiveBuffer.swap(m.withdrawnBuffer);
  }
  judge(m, m.receiveBuffer, length);
}

void Conversation::onPersistentReceived(std::size_t length) {
  if (persistentOrder_.empty()) {
    fault("the persistent receive completed more often than messages were sent");
    return;
  }
  Message& m = messages_[persistentOrder_.front()];
  persistentOrder_.pop_front();
  judge(m, std::span(region_).subspan(m.remoteOffset, m.length), length);
}

void Conversation::onAnnounced(MessageKey key, std::size_t length) {
  const std::uint64_t withdrawn = key.tag - tagBase_ - kWithdrawnTag;
  if (key.kind == MessageKind::kUnbound && withdrawn < kWithdrawnKeys) {
    onWithdrawnAnnounced(key);
    return;
  }
  if (key != MessageKey{MessageKind::kUnbound, tagBase_ + kAnnouncedTag}) return;
  if (announcedOrder_.empty()) {
    fault("a message was announced that was not sent");
    return;
  }
  const std::size_t index = announcedOrder_.front();
  announcedOrder_.pop_front();
  Message& m = messages_[index];
  if (length != m.length)
    fault(fmt::format("message {}: announced with {} bytes, sent with {}", index, length, m.length));
  // At once, from the event, or later; but in the order of the announcements.
  announcedToPost_.push_back(index);
  if (random_.chance(0.5)) {
    postAnnounced();
  } else {
    simulation_.after(m.receiveAt / 4, [this] { postAnnounced(); });
  }
}

void Conversation::postAnnounced() {
  receiver_.operate([this](Session&, TimePoint) {
    const std::size_t index = announcedToPost_.front();
    announcedToPost_.pop_front();
    postReceive(index);
  });
}

void Conversation::onWithdrawnAnnounced(MessageKey key) {
  const auto m =
      std::find_if(messages_.begin(), messages_.end(), [&](const Message& each) { return each.messageKey == key; });
  if (m == messages_.end()) {
    fault("a message was announced that was not sent");
    return;
  }
  // Announced before its first receive was posted: that one will match it.
  if (!m->withdrawnCancelled) return;
  ++openReceives_;
  postReceive(static_cast<std::size_t>(m - messages_.begin()));
}

void Conversation::judge(Message& message, std::span<const std::byte> bytes, std::size_t length) {
  if (message.received) fault(fmt::format("message with tag {:x} arrived twice", message.messageKey.tag));
  if (length != message.length) {
    fault(fmt::format("message with tag {:x}: {} bytes arrived of {}", message.messageKey.tag, length, message.length));
  } else if (!matchesPattern(bytes.first(length), message.pattern)) {
    fault(fmt::format("message with tag {:x}, {} bytes: the wrong bytes arrived", message.messageKey.tag, length));
  }
  message.received = true;
  --openReceives_;
  ++messagesDelivered_;
  bytesDelivered_ += length;
}

void Conversation::checkBuffers() {
  for (const Message& m : messages_) {
    if (!m.sendOpen && !all(m.sendBuffer, kScribble)) fault("a send buffer was written to");
    if (m.kind == KeyKind::kPersistent) {
      if (m.received && !matchesPattern(std::span(region_).subspan(m.remoteOffset, m.length), m.pattern)) {
        fault("the persistent region changed after its message was complete");
      }
      if (!all(std::span(region_).subspan(m.remoteOffset - kGuardBytes, kGuardBytes), kUntouched)) {
        fault("bytes between two messages of the persistent region were written to");
      }
    } else if (m.received) {
      const std::span<const std::byte> buffer = m.receiveBuffer;
      if (!matchesPattern(buffer.first(m.length), m.pattern)) fault("a receive buffer changed after its completion");
      if (!all(buffer.subspan(m.length), kUntouched)) fault("a receive buffer was written to beyond its message");
    }
    if (!m.withdrawnCopy.empty() && m.withdrawnCopy != m.withdrawnBuffer) {
      fault("the buffer of a cancelled receive was written to");
    }
  }
}

std::size_t Conversation::undelivered() const {
  return static_cast<std::size_t>(std::count_if(messages_.begin(), messages_.end(), [](const Message& m) {
    return m.sendPosted && !m.sendCancelled && !m.withdrawnCancelled && !m.received;
  }));
}

std::string Conversation::progress() const {
  return fmt::format("{} of {} messages delivered, {} sends and {} receives open", messagesDelivered_, messages_.size(),
                     openSends_, openReceives_);
}

void Conversation::refused(const Host& host, const char* what, std::size_t index, const Status& status) {
  const SessionState state = host.session().state();
  const bool ended = state == SessionState::kPeerClosed || state == SessionState::kFailed ||
                     state == SessionState::kClosing || state == SessionState::kClosed;
  if (!ended) fault(fmt::format("{} of message {}: {}", what, index, status.error().message));
}

void Conversation::fault(std::string text) {
  if (faults_.size() < kMaxFaults) faults_.push_back(std::move(text));
}

}  // namespace gloo_bypass::sim
