// Which arriving message belongs to which posted receive, when both sides of a channel deliver in order. Pure.
//
//   arrives -+- receive of the key posted: matched            post -+- unmatched message of the key: matched, the oldest first
//            `- none: unmatched, kept                                `- none: waits
//
// Messages of one key match receives of it in order, and receives complete in that order: a matched message that is complete waits
// for older ones of its key. A persistent receive matches every message of its key. A key costs memory only while something of it is here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/base/flat_map.h"
#include "transport/base/slot_list.h"
#include "transport/base/slot_pool.h"
#include "transport/core/message.h"

namespace gloo_bypass {

// A message that has arrived or been announced; the owner puts what it knows of it into `Body`.
template <typename Body>
class MessageMatcher {
 public:
  struct Message {
    MessageKey key;
    ReceiveRequest receive;  // when matched
    bool matched = false;
    bool complete = false;
    bool orphaned = false;  // its receive was cancelled: completes without telling
    Body body{};
    SlotIndex next = kNoSlot;
  };

  // A new message of `key`; matched at once if a receive waits. The owner fills in the body.
  SlotIndex arrive(MessageKey key) {
    const SlotIndex slot = messages_.take();
    Message& message = messages_[slot];
    message = Message{};
    message.key = key;
    Key& state = keys_.at(key);
    if (state.receives.empty()) {
      state.unmatched.append(messages_, slot);
      return slot;
    }
    const SlotIndex waiting = state.receives.head;
    message.receive = receives_[waiting].request;
    message.matched = true;
    if (!message.receive.persistent) {
      state.receives.takeFirst(receives_);
      receives_.give(waiting);
    }
    state.active.append(messages_, slot);
    return slot;
  }

  // The message that `request` is matched with now, or nothing: it waits. For a persistent request call again until it waits.
  std::optional<SlotIndex> post(const ReceiveRequest& request) {
    Key& state = keys_.at(request.key);
    if (!state.unmatched.empty()) {
      const SlotIndex slot = state.unmatched.takeFirst(messages_);
      messages_[slot].receive = request;
      messages_[slot].matched = true;
      state.active.append(messages_, slot);
      return slot;
    }
    const SlotIndex slot = receives_.take();
    receives_[slot] = {request, kNoSlot};
    state.receives.append(receives_, slot);
    return std::nullopt;
  }
  bool hasUnmatched(MessageKey key) {
    const Key* state = keys_.find(key);
    return state != nullptr && !state->unmatched.empty();
  }

  Message& operator[](SlotIndex slot) { return messages_[slot]; }

  // The message is in the user's buffer. Calls `tell(message)` for it and for younger complete ones of its key, unless an older one
  // is still under way. `tell` may post and cancel.
  template <typename Tell>
  void complete(SlotIndex slot, Tell&& tell) {
    messages_[slot].complete = true;
    const MessageKey key = messages_[slot].key;
    for (;;) {
      Key* state = keys_.find(key);
      if (state == nullptr || state->active.empty() || !messages_[state->active.head].complete) break;
      const SlotIndex done = state->active.takeFirst(messages_);
      const Message message = std::move(messages_[done]);
      messages_[done].body = Body{};
      messages_.give(done);
      eraseIfEmpty(key);
      if (!message.orphaned) tell(message);
    }
  }

  // Withdraws a waiting receive. False: it is not waiting.
  bool cancelWaiting(OperationToken token) {
    bool found = false;
    MessageKey foundKey;
    keys_.forEach([&](const MessageKey& key, Key& state) {
      if (found) return;
      for (SlotIndex slot = state.receives.head; slot != kNoSlot; slot = receives_[slot].next) {
        if (receives_[slot].request.token != token) continue;
        state.receives.remove(receives_, slot);
        receives_.give(slot);
        found = true;
        foundKey = key;
        return;
      }
    });
    if (found) eraseIfEmpty(foundKey);
    return found;
  }
  // Messages under way to this receive (several if it is persistent).
  template <typename F>
  void forEachActiveOf(OperationToken token, F&& f) {
    keys_.forEach([&](const MessageKey&, Key& state) {
      for (SlotIndex slot = state.active.head; slot != kNoSlot; slot = messages_[slot].next) {
        if (messages_[slot].receive.token == token && !messages_[slot].orphaned) f(slot);
      }
    });
  }
  template <typename F>
  void forEachActive(F&& f) {
    keys_.forEach([&](const MessageKey&, Key& state) {
      for (SlotIndex slot = state.active.head; slot != kNoSlot; slot = messages_[slot].next) f(messages_[slot]);
    });
  }

  // Waiting receives and active messages are forgotten; unmatched messages for which `keep` is true stay.
  template <typename Keep>
  void forgetReceives(Keep&& keep) {
    FlatMap<MessageKey, Key, MessageKeyHash> kept;
    keys_.forEach([&](const MessageKey& key, Key& state) {
      giveAll(receives_, &state.receives);
      giveAll(messages_, &state.active);
      SlotList stay;
      while (!state.unmatched.empty()) {
        const SlotIndex slot = state.unmatched.takeFirst(messages_);
        if (keep(messages_[slot])) {
          stay.append(messages_, slot);
        } else {
          messages_[slot] = Message{};
          messages_.give(slot);
        }
      }
      if (!stay.empty()) kept.at(key).unmatched = stay;
    });
    keys_ = std::move(kept);
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
  struct Key {
    SlotList receives;   // waiting
    SlotList unmatched;  // messages without a receive
    SlotList active;     // matched messages, completed in this order
  };

  template <typename T>
  static void giveAll(SlotPool<T>& pool, SlotList* list) {
    while (!list->empty()) {
      const SlotIndex slot = list->takeFirst(pool);
      pool[slot] = T{};
      pool.give(slot);
    }
  }
  void eraseIfEmpty(MessageKey key) {
    Key* state = keys_.find(key);
    if (state != nullptr && state->receives.empty() && state->unmatched.empty() && state->active.empty())
      keys_.eraseFound(state);
  }

  SlotPool<Message> messages_;
  SlotPool<Receive> receives_;
  FlatMap<MessageKey, Key, MessageKeyHash> keys_;
};

}  // namespace gloo_bypass
