// Matches arriving messages with the posted receives of one channel. Pure; one thread at a time.
//
//   arrive -+- receive of the key posted: matched       post -+- unmatched message of the key: matched, oldest first
//           `- none: unmatched, kept                          `- none: waits
//
// Messages of one key match its receives in order, and receives complete in that order: a complete message waits for
// older ones of its key. A persistent receive matches every message of its key. A key uses memory only while it has
// messages or receives. The owner calls arrive() in the peer's order of sending, bounds the number of messages, and
// moves their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "transport/base/flat_map.h"
#include "transport/base/slot_list.h"
#include "transport/base/slot_pool.h"
#include "transport/base/time.h"
#include "transport/channel/message.h"
#include "transport/channel/receive_fit.h"
#include "transport/channel/receive_place.h"

namespace gloo_bypass {

// `Body`: whatever else the owner records about a message.
template <typename Body>
class MessageMatcher {
 public:
  struct Message {
    MessageKey key;
    std::uint64_t length = 0, remoteOffset = 0;  // the owner sets these before the match or right after
    TimePoint arrived{};                         // the owner sets this for an unmatched message
    ReceiveRequest receive;                      // when matched
    bool matched = false;
    bool complete = false;
    bool orphaned = false;  // its receive was cancelled: the bytes are dropped, and no one is notified
    Body body{};
    SlotIndex next = kNoSlot;

    // For a matched message. Empty: it fits its receive; else what is wrong, and destination() is not valid.
    std::string misfit() const {
      return gloo_bypass::misfit(key, receive.capacity, receive.persistent, length, remoteOffset);
    }
    std::byte* destination() const { return receive.data + (receive.persistent ? remoteOffset : 0); }
    // For a matched message that fits. Each byte once.
    void place(std::uint64_t offset, std::span<const std::byte> bytes) const {
      gloo_bypass::place(receive, remoteOffset, offset, bytes);
    }
  };
  struct Key {
    SlotList receives;   // waiting; then there are no unmatched messages
    SlotList unmatched;  // messages without a receive
    SlotList active;     // matched messages, completed in this order
    bool empty() const { return receives.empty() && unmatched.empty() && active.empty(); }
  };

  // `seed`: random bits that the peer does not know, since it chooses the keys.
  explicit MessageMatcher(std::uint64_t seed) : keys_(MessageKeyHash{seed}) {}

  // A slot for a message that cannot be matched yet because an earlier one is missing. Its key may be unknown too.
  SlotIndex take() {
    const SlotIndex slot = messages_.take();
    messages_[slot] = Message{};
    return slot;
  }
  // True: a receive was waiting and is now matched.
  bool arrive(SlotIndex slot) {
    Message& message = messages_[slot];
    Key& key = keys_.at(message.key);
    if (key.receives.empty()) {
      key.unmatched.append(messages_, slot);
      return false;
    }
    const ReceiveRequest receive = firstReceive(key);
    if (!receive.persistent) dropFirstReceive(key);
    match(key, slot, receive);
    return true;
  }
  SlotIndex arrive(MessageKey key) {
    const SlotIndex slot = take();
    messages_[slot].key = key;
    (void)arrive(slot);
    return slot;
  }
  // Frees a slot from take() that never arrived.
  void give(SlotIndex slot) { forget(slot); }

  // The message that `request` matches now; nullopt: the request waits. For a persistent request, call again until it
  // waits.
  std::optional<SlotIndex> post(const ReceiveRequest& request) {
    Key& key = keys_.at(request.key);
    if (!key.unmatched.empty()) return match(key, key.unmatched.takeFirst(messages_), request);
    key.receives.append(receives_, takeReceive(request));
    return std::nullopt;
  }

  // For a message that is here whole and needs no bookkeeping: its key if a receive waits and no older message is under
  // way, else null. Valid until the next call that changes something.
  Key* readyKey(MessageKey name) {
    Key* key = keys_.find(name);
    return key == nullptr || key->receives.empty() || !key->active.empty() ? nullptr : key;
  }
  const ReceiveRequest& firstReceive(const Key& key) const { return receives_[key.receives.head].request; }
  // Completes the first receive of a ready key.
  void finishFirstReceive(Key* key) {
    if (firstReceive(*key).persistent) return;
    dropFirstReceive(*key);
    eraseIfEmpty(key);
  }
  // The receive that the key's next message will match; null: none waits.
  const ReceiveRequest* waiting(MessageKey name) const {
    const Key* key = keys_.find(name);
    return key == nullptr || key->receives.empty() ? nullptr : &firstReceive(*key);
  }
  // Null: every arrived message of the key has a receive.
  const Message* oldestUnmatched(MessageKey name) const {
    const Key* key = keys_.find(name);
    return key == nullptr || key->unmatched.empty() ? nullptr : &messages_[key->unmatched.head];
  }
  // For MessageChannel::oldestUnmatched.
  std::optional<TimePoint> unmatchedSince(MessageKey name) const {
    const Message* message = oldestUnmatched(name);
    return message == nullptr ? std::nullopt : std::optional(message->arrived);
  }

  Message& operator[](SlotIndex slot) { return messages_[slot]; }

  // The message is in the user's buffer. Calls `end(message)` for it and for younger complete ones of its key, orphaned
  // ones included, unless an older one is still under way. `end` may post, cancel and clear.
  template <typename End>
  void complete(SlotIndex slot, End&& end) {
    messages_[slot].complete = true;
    completeInOrder(messages_[slot].key, end);
  }

  // The sender took back a message that has arrived; its receive becomes the first of its key again. Returns the
  // message that this receive matches instead, if any. Calls `end`, as complete() does, for younger messages that
  // waited.
  template <typename End>
  std::optional<SlotIndex> withdraw(SlotIndex slot, End&& end) {
    Key* key = keys_.find(messages_[slot].key);
    (messages_[slot].matched ? key->active : key->unmatched).remove(messages_, slot);
    const Message message = std::move(messages_[slot]);
    forget(slot);
    std::optional<SlotIndex> met;
    if (message.matched && !message.orphaned && !message.receive.persistent) {
      if (key->unmatched.empty()) {
        key->receives.prepend(receives_, takeReceive(message.receive));
      } else {
        met = match(*key, key->unmatched.takeFirst(messages_), message.receive);
      }
    }
    eraseIfEmpty(key);
    completeInOrder(message.key, end);
    return met;
  }

  // Withdraws a waiting receive. False: it is not waiting.
  bool cancelWaiting(OperationToken token) {
    Key* found = nullptr;
    keys_.forEach([&](const MessageKey&, Key& key) {
      for (SlotIndex slot = key.receives.head; slot != kNoSlot && found == nullptr; slot = receives_[slot].next) {
        if (receives_[slot].request.token != token) continue;
        key.receives.remove(receives_, slot);
        receives_.give(slot);
        found = &key;
        return;
      }
    });
    if (found != nullptr) eraseIfEmpty(found);
    return found != nullptr;
  }
  // Messages under way to this receive (several if it is persistent).
  template <typename F>
  void forEachActiveOf(OperationToken token, F&& f) {
    keys_.forEach([&](const MessageKey&, Key& key) {
      for (SlotIndex slot = key.active.head; slot != kNoSlot; slot = messages_[slot].next) {
        if (messages_[slot].receive.token == token && !messages_[slot].orphaned) f(slot);
      }
    });
  }
  template <typename F>
  void forEachActive(F&& f) {
    keys_.forEach([&](const MessageKey&, Key& key) {
      for (SlotIndex slot = key.active.head; slot != kNoSlot; slot = messages_[slot].next) f(messages_[slot]);
    });
  }

  // Drops waiting receives and active messages. Unmatched messages stay while `whole` is true for them, up to their
  // key's first other one: behind a message that will never be whole, none of its key can be received. Calls `drop` for
  // each removed message.
  template <typename Whole, typename Drop>
  void forgetReceives(Whole&& whole, Drop&& drop) {
    FlatMap<MessageKey, Key, MessageKeyHash> kept(keys_.hash());
    const auto let = [&](SlotIndex slot) {
      drop(messages_[slot]);
      forget(slot);
    };
    keys_.forEach([&](const MessageKey& name, Key& key) {
      bool stays = key.active.empty();
      while (!key.receives.empty()) dropFirstReceive(key);
      while (!key.active.empty()) let(key.active.takeFirst(messages_));
      SlotList stay;
      while (!key.unmatched.empty()) {
        const SlotIndex slot = key.unmatched.takeFirst(messages_);
        stays = stays && whole(messages_[slot]);
        if (stays) {
          stay.append(messages_, slot);
        } else {
          let(slot);
        }
      }
      if (!stay.empty()) kept.at(name).unmatched = stay;
    });
    keys_ = std::move(kept);
  }
  template <typename Whole>
  void forgetReceives(Whole&& whole) {
    forgetReceives(whole, [](const Message&) {});
  }
  void clear() {
    keys_.clear();
    messages_.clear();
    receives_.clear();
  }

  std::size_t memoryBytes() const { return keys_.memoryBytes() + messages_.memoryBytes() + receives_.memoryBytes(); }

 private:
  struct Receive {
    ReceiveRequest request;
    SlotIndex next = kNoSlot;
  };

  SlotIndex match(Key& key, SlotIndex slot, const ReceiveRequest& receive) {
    messages_[slot].receive = receive;
    messages_[slot].matched = true;
    key.active.append(messages_, slot);
    return slot;
  }
  template <typename End>
  void completeInOrder(MessageKey name, End& end) {
    for (;;) {
      Key* key = keys_.find(name);
      if (key == nullptr || key->active.empty() || !messages_[key->active.head].complete) break;
      const SlotIndex done = key->active.takeFirst(messages_);
      Message message = std::move(messages_[done]);
      messages_[done].body = Body{};
      messages_.give(done);
      eraseIfEmpty(key);
      end(message);
    }
  }
  SlotIndex takeReceive(const ReceiveRequest& request) {
    const SlotIndex slot = receives_.take();
    receives_[slot] = {request, kNoSlot};
    return slot;
  }
  void dropFirstReceive(Key& key) { receives_.give(key.receives.takeFirst(receives_)); }
  void forget(SlotIndex slot) {
    messages_[slot] = Message{};
    messages_.give(slot);
  }
  void eraseIfEmpty(Key* key) {
    if (key->empty()) keys_.eraseFound(key);
  }

  SlotPool<Message> messages_;
  SlotPool<Receive> receives_;
  FlatMap<MessageKey, Key, MessageKeyHash> keys_;
};

}  // namespace gloo_bypass
