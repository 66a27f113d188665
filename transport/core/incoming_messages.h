// Messages on their way in: introduced to the matcher in order of their ids, and reassembled. Pure.
//
//   first frame -> known -> described -> (and every earlier id) introduced
//                                                                  |- receive posted: matched, grant sent if requested
//                                                                  `- none: unmatched, announced to the user, staged
//
// kData and kAnnounce describe a message: tag, length. A kChunk may come before them; it is staged.
//
// Chunks of a matched message go straight to their place; of an unmatched one into staging memory, which the credit
// window bounds. What is staged when the message is matched moves to its place once it has no holes, so that each byte
// is placed once: a consumer adds it. Messages begun and not completed: at most kMaxOpenMessages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/buffer_pool.h"
#include "transport/base/flat_map.h"
#include "transport/base/ring_queue.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/channel/channel_counters.h"
#include "transport/core/control_frame.h"
#include "transport/core/credit_window.h"
#include "transport/core/session_event.h"
#include "transport/matching/message_matcher.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

inline constexpr std::uint64_t kMaxOpenMessages = 65536;
// Control frames that wait to be sent: a grant for each, and as many withdrawals of this side.
inline constexpr std::size_t kMostControls = 2 * kMaxOpenMessages;
// 2^62: sums of two lengths cannot overflow.
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 62;

class IncomingMessages {
 public:
  // Pointers are borrowed for the object's lifetime. `seed`: random bits that the peer does not know.
  IncomingMessages(CreditWindow credit, RingQueue<SessionEvent>* events, RingQueue<ControlFrame>* controls,
                   ChannelCounters* counters, std::uint64_t seed)
      : credit_(credit),
        events_(events),
        controls_(controls),
        counters_(counters),
        matcher_(seed),
        known_(MixHash{seed}) {}

  Status post(const ReceiveRequest& request);
  // As MessageChannel::oldestUnmatched.
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const { return matcher_.unmatchedSince(key); }
  bool cancel(OperationToken token);

  // Frames, each exactly once. False: error() says what is wrong; the session must fail.
  bool onData(TimePoint now, const wire::MessageHeader& header, std::span<const std::byte> payload);
  bool onChunk(TimePoint now, const wire::ChunkHeader& chunk, bool granted, std::span<const std::byte> payload);
  bool onAnnounce(TimePoint now, const wire::MessageHeader& header);
  bool onWithdraw(TimePoint now, std::uint64_t id);
  const Error& error() const { return error_; }

  CreditWindow& credit() { return credit_; }
  std::uint64_t messageLimit() const { return finished_ + kMaxOpenMessages; }
  // The limits have moved so far that a frame of their own must report them to the peer.
  bool limitsDue() const { return credit_.updateDue() || finished_ - toldFinished_ >= kMaxOpenMessages / 4; }
  void onLimitsTold() {
    credit_.onTold();
    toldFinished_ = finished_;
  }
  // Receives are forgotten. Messages that are here whole are kept, but for those behind one of the same key that is
  // not.
  void forgetReceives();
  void clear();
  std::size_t memoryBytes() const {
    return stagingBytes_ + pool_.cachedBytes() + matcher_.memoryBytes() + known_.memoryBytes();
  }

 private:
  struct Incoming {
    std::uint64_t id = 0;
    std::uint64_t arrived = 0;  // bytes
    std::uint64_t extent = 0;   // staged: end of the highest byte
    std::uint64_t stagedBytes = 0;
    PooledBuffer staging;
    bool described = false, introduced = false;
    bool emptyArrived = false;  // the one chunk of a message of no bytes
    bool wantsGrant = false, granted = false, withdrawn = false;
  };
  using Matcher = MessageMatcher<Incoming>;
  using Message = Matcher::Message;

  bool fail(ErrorCode code, std::string what);
  bool violation(const char* what) { return fail(ErrorCode::kPeerViolatedProtocol, what); }
  bool tryFastPath(const wire::MessageHeader& header, std::span<const std::byte> payload, bool* taken);
  SlotIndex findOrMake(std::uint64_t id);
  SlotIndex findAndDescribe(const wire::MessageHeader& header);
  SlotIndex make(std::uint64_t id);
  bool introduceReady(TimePoint now);
  bool introduce(TimePoint now, SlotIndex slot);
  bool begin(SlotIndex slot);
  bool take(TimePoint now, SlotIndex slot, std::uint64_t offset, bool granted, std::span<const std::byte> payload);
  bool place(SlotIndex slot, std::uint64_t offset, bool granted, std::span<const std::byte> payload);
  bool stage(Incoming& incoming, std::uint64_t length, std::uint64_t offset, std::span<const std::byte> payload);
  void placeStaged(Message& message);
  bool grantIfWanted(Incoming& incoming);
  void completeIfHere(SlotIndex slot);
  void end(Message& message);
  void unstage(Incoming& incoming);
  void finish(Incoming& incoming);
  static bool isHere(const Message& message);

  CreditWindow credit_;
  RingQueue<SessionEvent>* events_;
  RingQueue<ControlFrame>* controls_;
  ChannelCounters* counters_;
  Matcher matcher_;
  BufferPool pool_;
  FlatMap<std::uint64_t, SlotIndex> known_;  // by id
  std::uint64_t nextId_ = 0;                 // every message before it is introduced
  std::uint64_t finished_ = 0;               // completed, thrown away or withdrawn
  std::uint64_t toldFinished_ = 0;
  std::size_t ahead_ = 0;  // known messages with an id >= nextId_
  std::uint64_t stagedExtents_ = 0;
  std::size_t stagingBytes_ = 0;
  Error error_;
};

}  // namespace gloo_bypass
