// Messages on their way out: which may go eagerly, which wait for a grant, and how they are cut into frames. Pure.
//
//   post -> kQueued -> kIntroducing (eager chunks) ----------------------> kSent -> all acknowledged -> gone
//                |            \ credit ran out: kAnnounce went first        ^
//                |             -> kAwaitingGrant -- kGrant --> kGranted ----+
//                `- announced, nothing eager ---^    `- cancelled: kWithdrawn (kWithdraw) -> gone
//
// A message that awaits a grant only for want of credit goes on eagerly when credit comes first (starved_).
//
// Rails (session.h) carry chunks of long messages that this queue's own session has introduced.
//
// Ids are given when a message is introduced, in order, without holes. A copied message completes when the port has
// taken every byte: nothing of it is left in this process alone, except for retransmission. It completes when every
// byte is acknowledged if it is not copied, or is to be confirmed. On a lossless link every message completes when the
// port has taken it, since nothing is ever retransmitted there. Bounds: payload copied <= the buffer limit; messages
// introduced and not matched by the peer <= the peer's message limit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/buffer_pool.h"
#include "transport/base/config.h"
#include "transport/base/flat_map.h"
#include "transport/base/ring_queue.h"
#include "transport/base/slot_pool.h"
#include "transport/channel/channel_counters.h"
#include "transport/core/session_event.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

// The next frame's content.
struct FramePlan {
  wire::FrameType type = wire::FrameType::kData;
  SlotIndex message = kNoSlot;
  std::uint64_t offset = 0;
  std::uint16_t length = 0;
  std::uint8_t flags = 0;
  bool ackRequested = false;  // somebody waits for this acknowledgement
};

// The largest chunk of a frame, in bytes.
struct ChunkSizes {
  std::size_t whole = 0;  // of a kData, which describes its message
  std::size_t later = 0;  // of a frame after that
  bool compact = false;   // those are kChunk and kGrantedChunk; else kData too
};

class SendQueue {
 public:
  // Pointers are borrowed for the queue's lifetime.
  SendQueue(const SessionConfig& config, RingQueue<SessionEvent>* events, ChannelCounters* counters)
      : config_(config), events_(events), counters_(counters) {}

  // Before the first post().
  void markLossless() { config_.losslessLink = true; }
  void post(const SendRequest& request);
  enum class Cancel : std::uint8_t { kUnknown, kGoesOn, kDone, kWithdraw, kPartlySent };
  // kGoesOn: the send goes on as a copy, without a completion; a send that has partly gone out is copied now.
  // kPartlySent: it is too long for that. kWithdraw: the caller must send kWithdraw for `*id`.
  Cancel cancel(OperationToken token, std::uint64_t* id);

  // From the peer. onGrant false: no such message was ever announced.
  bool onGrant(std::uint64_t id);
  void onLimits(std::uint64_t byteLimit, std::uint64_t messageLimit);
  void onFrameAcked(SlotIndex message);
  // The port has taken a chunk of `length` bytes of it, for the first time.
  void onHandedOver(SlotIndex message, std::size_t length);

  // True: `*plan` is committed and must be given a sequence number.
  bool next(const ChunkSizes& sizes, FramePlan* plan);
  // Whether next() would give anything.
  bool ready(const ChunkSizes& sizes);
  // The same for a rail. onPartAcked() reports that the peer has what nextPart() gave.
  bool nextPart(const ChunkSizes& sizes, FramePlan* plan);
  bool partReady(const ChunkSizes& sizes) {
    return !granted_.empty() || frontHasParts() || oldestStarved(sizes) != nullptr;
  }
  void onPartAcked(SlotIndex message) {
    --partsUnderWay_;
    onFrameAcked(message);
  }
  wire::MessageHeader describe(SlotIndex message) const;  // chunk fields 0
  std::uint64_t id(SlotIndex message) const { return messages_[message].id; }
  std::uint64_t eagerEnd(SlotIndex message) const { return messages_[message].eagerEnd; }
  // Whether payload() is in the user's buffer, and not in a copy.
  bool isUsers(SlotIndex message) const { return messages_[message].buffer.data == nullptr; }
  const std::byte* payload(SlotIndex message, std::uint64_t offset) const { return messages_[message].data + offset; }

  void setLongPath(bool longPath);
  void setBufferLimit(std::size_t bytes);
  // Nothing has to go out any more, nor can a part still be under way when the peer has all of this session's frames.
  bool allSent() const { return unsent_ == 0 && partsUnderWay_ == 0; }
  std::uint64_t introduced() const { return nextId_; }
  // Takes copies of everything that still points into user memory; false: more than maxBufferBytes.
  bool adoptAll();
  void clear();
  std::size_t memoryBytes() const {
    return bufferedBytes_ + pool_.cachedBytes() + messages_.memoryBytes() + awaiting_.memoryBytes() +
           queue_.memoryBytes() + granted_.memoryBytes() + uncopied_.memoryBytes() + starved_.memoryBytes();
  }

 private:
  enum class State : std::uint8_t {
    kFree,
    kQueued,
    kCancelled,
    kIntroducing,
    kAwaitingGrant,
    kGranted,
    kSent,
    kWithdrawn
  };
  struct Message {
    std::uint64_t id = 0, serial = 0;
    OperationToken token = 0;
    MessageKey key;
    const std::byte* data = nullptr;
    std::uint64_t length = 0, remoteOffset = 0;
    std::uint64_t sent = 0;        // bytes given to frames
    std::uint64_t handedOver = 0;  // bytes the port has taken
    std::uint64_t eagerEnd = 0;    // bytes that go without a grant
    PooledBuffer buffer;
    std::uint32_t frames = 0;  // not acknowledged
    State state = State::kFree;
    bool copied = false;     // the user's buffer is not read any more
    bool confirmed = false;  // SendRequest::confirmed
    bool completed = false;  // the user has had the event, or cancelled the send
    bool granted = false;
  };
  struct Reference {
    SlotIndex slot = kNoSlot;
    std::uint64_t serial = 0;
  };
  // Large messages go without waiting for a grant as far as credit allows: a round trip is dear on long paths, and on a
  // memory link it takes both processes to be scheduled twice more.
  bool eagerWhateverLength() const { return longPath_ || config_.losslessLink; }
  bool introduce(Message& message);
  bool nextIntroduced(const ChunkSizes& sizes, FramePlan* plan);
  Message* oldestStarved(const ChunkSizes& sizes);
  bool nextStarved(const ChunkSizes& sizes, FramePlan* plan);
  bool nextGranted(const ChunkSizes& sizes, FramePlan* plan);
  bool frontHasParts();
  void fillChunk(SlotIndex slot, std::uint64_t end, const ChunkSizes& sizes, bool granted, FramePlan* plan);
  void leaveQueue(SlotIndex slot);
  void finishIfDone(SlotIndex slot);
  void release(SlotIndex slot);
  bool copy(Message& message);
  bool adopt(Message& message);
  bool completesWhenTaken(const Message& message) const {
    return config_.losslessLink || (message.copied && !message.confirmed);
  }
  void complete(Message& message);
  void copyWaiting();
  void waitForRoom(SlotIndex slot);
  bool waitsForRoom(const Reference& reference) const;
  bool starves(const Reference& reference) const;
  template <typename Keep>
  static void pushCompacting(RingQueue<Reference>* queue, Reference reference, std::size_t* compactAt, Keep&& keep);

  SessionConfig config_;
  RingQueue<SessionEvent>* events_;
  ChannelCounters* counters_;
  SlotPool<Message> messages_;
  BufferPool pool_;
  RingQueue<SlotIndex> queue_;     // to be introduced, in order of posting
  RingQueue<SlotIndex> granted_;   // being sent on grants, in order of granting
  RingQueue<Reference> uncopied_;  // long paths: wait for room in the buffer
  RingQueue<Reference> starved_;   // announced for want of credit only, oldest first; granted ones linger here
  std::size_t compactUncopiedAt_ = 0, compactStarvedAt_ = 0;
  FlatMap<std::uint64_t, SlotIndex> awaiting_;  // announced, by id
  std::uint64_t nextId_ = 0, nextSerial_ = 0;
  std::uint64_t byteLimit_ = 0, messageLimit_ = 0, eagerSent_ = 0;
  std::size_t bufferedBytes_ = 0, bufferLimit_ = 0;
  std::size_t unsent_ = 0;
  std::size_t partsUnderWay_ = 0;  // frames given to rails and not acknowledged
  bool longPath_ = false;
  bool grantedTurn_ = false;
};

}  // namespace gloo_bypass
