// Messages on their way in: matched with receives in order of their ids, and put together. Pure.
//
//   first frame -> known -> (every earlier id known) introduced -+- receive posted: matched, grant sent if asked for
//                                                                `- none: unmatched, announced to the user, staged
//   postReceive: the oldest unmatched message of the key, or wait.   All bytes there and no older one of the key
//   unfinished: completed.
//
// Chunks of a matched message go straight to the user's buffer; of an unmatched one into staging memory, which the credit
// window bounds. Messages begun and not completed: at most kMaxOpenMessages. A key costs memory only while something of it is here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/buffer_pool.h"
#include "transport/base/flat_map.h"
#include "transport/base/ring_queue.h"
#include "transport/base/slot_list.h"
#include "transport/base/slot_pool.h"
#include "transport/core/control_frame.h"
#include "transport/core/credit_window.h"
#include "transport/core/session.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

inline constexpr std::uint64_t kMaxOpenMessages = 65536;
// 2^62: sums of two lengths cannot overflow.
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 62;

class IncomingMessages {
 public:
  // Pointers are borrowed for the object's lifetime.
  IncomingMessages(CreditWindow credit, RingQueue<SessionEvent>* events, RingQueue<ControlFrame>* controls,
                   ChannelCounters* counters)
      : credit_(credit), events_(events), controls_(controls), counters_(counters) {}

  Status post(const ReceiveRequest& request);
  // Only a message that is here completely; for use after the peer's close.
  bool hasComplete(MessageKey key);
  bool cancel(OperationToken token);

  // Frames, each exactly once. False: error() says what is wrong; the session must fail.
  bool onChunk(const MessageHeader& header, std::span<const std::byte> payload);
  bool onAnnounce(const MessageHeader& header);
  bool onWithdraw(std::uint64_t id);
  const Error& error() const { return error_; }

  CreditWindow& credit() { return credit_; }
  std::uint64_t messageLimit() const { return finished_ + kMaxOpenMessages; }
  // Limits moved so far that the peer must be told reliably.
  bool limitsDue() const { return credit_.updateDue() || finished_ - toldFinished_ >= kMaxOpenMessages / 4; }
  void onLimitsTold() {
    credit_.onTold();
    toldFinished_ = finished_;
  }
  std::uint64_t introduced() const { return nextId_; }
  // Receives are forgotten, messages that are here completely are kept.
  void forgetReceives();
  void clear();
  std::size_t memoryBytes() const {
    return stagingBytes_ + pool_.cachedBytes() + messages_.memoryBytes() + receives_.memoryBytes() +
           keys_.memoryBytes() + known_.memoryBytes();
  }

 private:
  struct Receive {
    OperationToken token = 0;
    MessageKey key;
    std::byte* data = nullptr;
    std::size_t capacity = 0;
    bool persistent = false, live = false;
    SlotIndex next = kNoSlot;
  };
  struct Message {
    std::uint64_t id = 0, length = 0, remoteOffset = 0;
    MessageKey key;
    std::uint64_t arrived = 0;      // bytes
    std::uint64_t extent = 0;       // staged: end of the highest byte
    std::uint64_t stagedBytes = 0;
    PooledBuffer staging;
    Receive receive;                // as matched
    std::byte* destination = nullptr;
    SlotIndex next = kNoSlot;
    bool live = false, described = false, introduced = false, matched = false;
    bool emptyArrived = false;      // the one chunk of a message of no bytes
    bool wantsGrant = false, granted = false, withdrawn = false, discarded = false;
    bool complete() const { return described && arrived == length && (length != 0 || emptyArrived); }
  };
  struct Key {
    SlotList receives;   // posted, unmatched
    SlotList unmatched;  // introduced messages without receive
    SlotList active;     // matched messages, completed in this order
    bool empty() const { return receives.empty() && unmatched.empty() && active.empty(); }
  };

  bool fail(ErrorCode code, std::string what);
  bool violation(const char* what) { return fail(ErrorCode::kPeerViolatedProtocol, what); }
  bool tryFastPath(const MessageHeader& header, std::span<const std::byte> payload, bool* taken);
  SlotIndex findOrMake(const MessageHeader& header);
  SlotIndex make(std::uint64_t id);
  bool introduceReady();
  bool introduce(SlotIndex slot);
  bool match(Key* key, SlotIndex slot);
  bool place(Message& message, const MessageHeader& header, std::span<const std::byte> payload);
  bool stage(Message& message, const MessageHeader& header, std::span<const std::byte> payload);
  bool checkFits(const Receive& receive, const MessageKey& key, std::uint64_t length, std::uint64_t remoteOffset);
  void grantIfWanted(Message& message);
  void completeInOrder(Key* key);
  void unstage(Message& message);
  void release(SlotIndex slot);
  void eraseIfEmpty(Key* key);
  bool returnReceive(Key* key, const Receive& receive);

  CreditWindow credit_;
  RingQueue<SessionEvent>* events_;
  RingQueue<ControlFrame>* controls_;
  ChannelCounters* counters_;
  SlotPool<Message> messages_;
  SlotPool<Receive> receives_;
  BufferPool pool_;
  FlatMap<MessageKey, Key, MessageKeyHash> keys_;
  FlatMap<std::uint64_t, SlotIndex> known_;  // by id
  std::uint64_t nextId_ = 0;   // every message before it is introduced
  std::uint64_t finished_ = 0; // completed, thrown away or withdrawn
  std::uint64_t toldFinished_ = 0;
  std::size_t ahead_ = 0;      // known messages with an id >= nextId_
  std::uint64_t stagedExtents_ = 0;
  std::size_t stagingBytes_ = 0;
  Error error_;
};

}  // namespace gloo_bypass
