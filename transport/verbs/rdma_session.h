// One channel's life over queue pairs, without the handle that its user holds (transport/sessions).
//
//   frames queue pair, rail 0     SENDs under credits: small messages whole, announcements of large ones, and that
//                                 those have been read
//   reads queue pair, each rail   RDMA READs of announced messages, from the sender's buffer into the receiver's, cut
//                                 into chunks. Apart from the frames, so that no frame waits behind a megabyte
//   served queue pair, each rail  of sessions with keys: the peer's READs arrive at it, and windows are bound on it.
//                                 Apart from our own READs, so that no window waits behind them. Other sessions serve
//                                 on the reads queue pair
//
//   message    small: copied, sent, complete at once; or, if it is to be confirmed, once the peer's adapter has it
//              large, or the receiver's window is full: registered, announced; the receiver reads it when a receive
//              matches, then says done: complete
//              with keys: a window to its bytes is bound before the announcement, and invalidated before it is complete
//   unconnected --connect--> connecting --peer says ready--> connected --> peer closed (bye) | failed | closed
//
// The end has two sides. Ours, once close() was called:
//
//   NONE --close--> LEAVING --large messages are read--> FLUSHING --> BYE SENT --its completion--> BYE ACKNOWLEDGED
//                      |                                     |           |                               |
//                      +--the peer closed first--> LINGERING |           |                               | peer's bye
//                      |                               |     |           |                               v
//                      +--abort, failed, not in time---+-----+-----------+-- gone, failed, linger --> FINISHED
//
// The peer's, which only grows: PRESENT, SAID BYE, GONE (what had come before is still to be looked at), LOST (looked
// at).
//
// Thread: every method needs the progress engine's exclusive access.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/buffer_pool.h"
#include "transport/base/flat_map.h"
#include "transport/base/ring_queue.h"
#include "transport/matching/message_matcher.h"
#include "transport/security/key_agreement.h"
#include "transport/sessions/channel_session.h"
#include "transport/verbs/control_plane.h"
#include "transport/verbs/rail_queues.h"
#include "transport/verbs/rdma_address.h"
#include "transport/verbs/rdma_device.h"
#include "transport/verbs/rdma_frame.h"
#include "transport/verbs/receive_slots.h"
#include "transport/verbs/work_id.h"

namespace gloo_bypass::verbs {

class RdmaSession final : public ChannelSession, private ControlObserver {
 public:
  // `index`: never used again in this transport; `id`: random, exchanged through the rendezvous store;
  // `entropy`: random, and the peer does not know it.
  RdmaSession(RdmaDevice& device, DirtyList& dirtyList, std::uint32_t index, std::uint64_t id, std::uint64_t entropy,
              const ChannelOptions& options, ChannelObserver* observer);
  ~RdmaSession() override;

  // Queue pairs, credits. Errors: the device's limits.
  Status open();
  RdmaAddress address() const;
  // Between open() and connect(). Not null: the control connection is authenticated.
  void secure(std::unique_ptr<security::KeyAgreement> agreement) { agreement_ = std::move(agreement); }
  std::vector<std::byte> offer() const { return agreement_ ? agreement_->offer() : std::vector<std::byte>(); }

  Status connect(TimePoint now, const ChannelAddress& address) override;
  Status postSend(const SendRequest& request) override;
  Status postReceive(const ReceiveRequest& request) override;
  bool cancelSend(OperationToken token) override;
  bool cancelReceive(OperationToken token) override;
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override { return matcher_.unmatchedSince(key); }
  void close(TimePoint now, bool abort) override;
  // Forgets everything pending and tells the observer. Not after close().
  void fail(Error error);

  // Completions.
  void onReceived(std::uint32_t slot, const ibv_wc& completion);
  void onSent(WorkKind kind, std::uint32_t number);
  void onWorkFailed(WorkKind kind, std::uint32_t number, ibv_wc_status status);

  // Sends what may be sent, and looks at timers and at the peer's end; asks for the data of announced messages if it
  // `mayRead`. True if anything happened.
  bool pump(TimePoint now, bool mayRead);
  // Has READs to post.
  bool wantsToRead() const { return state_ == ChannelState::kConnected && !toRead_.empty(); }
  TimePoint deadline() const override;

  ChannelState state() const override { return state_; }
  const Error& error() const override { return error_; }
  ChannelCounters counters() const override { return counters_; }
  std::uint32_t index() const { return static_cast<std::uint32_t>(number()); }
  std::uint32_t key() const { return index(); }
  // Numbers are a device's own.
  bool hasQueuePair(const RailQueues& queues, std::uint32_t number) const;
  bool completesIn(const ibv_cq* queue) const;
  bool drained() const override { return (ending_ != Ending::kFlushing && ending_ != Ending::kByeSent) || peerGone(); }
  bool finished() const override { return ending_ == Ending::kFinished; }

 private:
  enum class Ending : std::uint8_t {
    kNone,
    kLeaving,   // close() waits for large messages; small ones wait for the window
    kFlushing,  // what was posted goes out from copies
    kByeSent,
    kByeAcknowledged,
    kLingering,  // the peer said bye before us: its adapter may still have to hear that we heard
    kFinished,
  };
  enum class PeerEnd : std::uint8_t { kPresent, kSaidBye, kGone, kLost };

  struct PendingSend {
    SendRequest request;
    PooledBuffer owned;  // after close(): the copy that `request` points to
    bool cancelled = false;
  };
  // A large message, by its id:
  //
  //   kBinding --windows bound--> (announced) kAnnounced --done--> kEnding --windows invalidated--> complete
  //
  // Without windows the first and the last take no time.
  struct AnnouncedSend {
    enum class Stage : std::uint8_t { kBinding, kAnnounced, kEnding };

    OperationToken token = 0;
    std::uint64_t length = 0;
    const Registration* registration = nullptr;
    Stage stage = Stage::kBinding;
    bool cancelled = false;                    // its completion is not told
    unsigned windowWork = 0;                   // requests under way for its windows
    std::array<ibv_mw*, kMaxRails> windows{};  // one for each rail, or none
  };
  enum class Offer : std::uint8_t { kAnnounced, kWaits, kFailed };
  struct PostedFrame {
    std::uint32_t slot = kNoSlot;            // kNoSlot: sent inline
    std::optional<OperationToken> confirms;  // a send that is complete once the peer's adapter has the frame
  };
  // A message that was announced, or that came before its receive.
  struct Incoming {
    bool announced = false;
    std::uint64_t id = 0, address = 0;
    std::array<std::uint32_t, kMaxRails> remoteKeys{};
    PooledBuffer staged;          // not announced: the payload
    std::uint64_t requested = 0;  // bytes for which READs were posted
    std::uint32_t underWay = 0;   // READs posted and not complete
    const Registration* registration = nullptr;
  };
  using Matcher = MessageMatcher<Incoming>;
  struct ReadUnderWay {
    SlotIndex slot = kNoSlot;
    std::size_t bytes = 0;
  };
  struct ReadsRail {
    CompletionShare completions;  // on rail 0 those of frames, too
    std::unique_ptr<QueuePair> pair;
    std::unique_ptr<QueuePair> served;    // null: `pair` is
    RingQueue<ReadUnderWay> underWay;     // READs of a queue pair complete in order
    RingQueue<std::uint64_t> windowWork;  // ids of the messages that binds and invalidations are for; they do too
  };

  // ControlObserver
  void onPeerReady() noexcept override;
  void onPeerGone(bool aborted, const std::string& cause) noexcept override;

  // Sending (rdma_session_send.cc)
  bool haveCredit(bool forData) const;
  bool pumpOutgoing();
  bool pumpDone();
  void pumpCredit();
  void pumpBye();
  bool fitsWindow(std::uint64_t length) const;
  void sendEager(const PendingSend& send);
  Offer announce(const SendRequest& request);
  bool pushFrame(RdmaFrame frame, std::span<const std::byte> payload,
                 std::optional<OperationToken> confirms = std::nullopt);
  bool flushFrames();
  void takeReturned(const RdmaFrame& frame);
  void onDone(std::uint64_t id);
  void finishSend(std::uint64_t id);
  void settleConfirmed();
  AnnouncedSend endAnnounced(std::uint64_t id);
  AnnouncedSend& announcedSend(std::uint64_t id);

  // The peer's right to read (rdma_session_windows.cc)
  Offer offer(const SendRequest& request);
  bool windowRoom() const;
  std::size_t takeWindows(AnnouncedSend& send);
  void giveWindows(AnnouncedSend& send);
  bool mayGetWindows();
  void destroyWindows(AnnouncedSend& send);
  void destroyWindows();
  Status postWindowWork(std::uint64_t id, std::size_t rail, ibv_send_wr& work);
  Status bindWindows(std::uint64_t id, const std::byte* data);
  bool pumpEnds();
  void endConfirmed();
  void onWindow(ReadsRail& rail);
  void withdrawOffer();
  void awaitEnd(std::uint64_t id);
  std::uint64_t windowCharge(std::uint64_t length) const;

  // Receiving (rdma_session_receive.cc)
  void takeFrame(std::uint32_t slot, std::uint32_t length);
  void onFrame(std::span<const std::byte> bytes);
  void onReceiveFailed(ibv_wc_status status);
  void onEager(const RdmaFrame& frame, std::span<const std::byte> payload);
  void onAnnounce(const RdmaFrame& frame);
  void onBye();
  void begin(SlotIndex slot);
  Status deliver(SlotIndex slot, std::span<const std::byte> payload);
  Status fits(const Matcher::Message& message);
  bool pumpReads();
  bool postRead(SlotIndex slot, std::size_t rail);
  std::size_t chunkOf(const Matcher::Message& message) const;
  void onRead(ReadsRail& rail);
  void finishRead(SlotIndex slot);
  void awaitLanding(const std::vector<SlotIndex>& slots);
  void complete(SlotIndex slot);
  void consumed(std::uint64_t length);

  // Closed, and still sending.
  bool flushing() const { return ending_ >= Ending::kFlushing && ending_ <= Ending::kByeAcknowledged; }
  bool peerGone() const { return peerEnd_ >= PeerEnd::kGone; }
  Status refusal() const;
  void violation(const char* what);
  bool pumpEnd(TimePoint now);
  void stopTraffic();
  void endReads();
  void releaseMemory();
  void setState(ChannelState state);
  void forgetReceives();
  bool lingerForLarge();

  RdmaDevice& device_;
  ChannelState state_ = ChannelState::kUnconnected;
  Error error_;
  std::unique_ptr<security::KeyAgreement> agreement_;  // null: this transport's sessions have no keys
  std::uint64_t peerId_ = 0;
  RdmaAddress peer_;
  TimePoint connectDeadline_ = kNever, lingerUntil_ = kNever;

  std::optional<ReceiveSlots> receives_;  // of the frames queue pair
  // Frames that came before the peer's word on the control connection: slots and lengths, at most as many as credits.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> early_;
  std::unique_ptr<QueuePair> frames_;
  std::vector<ReadsRail> reads_;
  unsigned sendDepth_ = 0, credits_ = 0;  // of the frames queue pair: sends, and receives that the peer may count on

  // Sending
  RingQueue<PendingSend> outgoing_;
  FlatMap<std::uint64_t, AnnouncedSend> announced_;
  std::uint64_t nextAnnounceId_ = 1;
  unsigned windowDepth_ = 0;        // binds and invalidations under way, of each rail
  std::uint64_t offered_ = 0;       // the head of outgoing_, in announced_ and not yet announced; 0: none
  RingQueue<std::uint64_t> toEnd_;  // confirmed by the peer, with windows to invalidate
  // While the device's windows are all in other sessions' use: when to ask again, and until when.
  TimePoint windowsAt_ = kNever, windowsUntil_ = kNever;
  // Complete since the queue pairs are gone, or the peer said so in its bye; setState() tells the observer.
  std::vector<OperationToken> ended_;
  std::size_t eagerLimit_ = 0;
  std::uint32_t framesSent_ = 0, slotsReturned_ = 0;   // totals, modulo 2^32
  std::uint64_t windowUsed_ = 0, windowReturned_ = 0;  // totals
  RingQueue<PostedFrame> posted_;                      // and not known to have arrived
  std::uint32_t sentFrames_ = 0;  // frames known to have arrived; the oldest in posted_ has this number
  std::uint32_t lastSignalled_ = 0;
  static constexpr unsigned kMaxReadsUnderWay = 16;  // of each rail
  static constexpr std::size_t kBatch = 16;
  std::array<ibv_send_wr, kBatch> batch_{};
  std::array<ibv_sge, kBatch> batchPieces_{};
  std::array<std::uint32_t, kBatch> batchInline_{};  // slots to give back once posted
  std::size_t batchSize_ = 0, batchInlineSize_ = 0;

  // Receiving
  Matcher matcher_;
  RingQueue<SlotIndex> toRead_;         // matched, with bytes to ask for
  std::size_t readBytesUnderWay_ = 0;   // over all rails; at most readBytes of the settings, or one READ's
  RingQueue<std::uint64_t> toConfirm_;  // ids of messages that were read
  std::size_t announcedHere_ = 0;       // announced to us and not confirmed
  std::uint32_t framesReceived_ = 0, toldFrames_ = 0;
  std::uint64_t windowReceived_ = 0, windowConsumed_ = 0, toldWindow_ = 0;

  // The end
  Ending ending_ = Ending::kNone;
  PeerEnd peerEnd_ = PeerEnd::kPresent;
  Error peerEndError_;           // once the peer is gone
  std::uint32_t byeNumber_ = 0;  // the frame that is our bye
  ChannelCounters counters_;
};

}  // namespace gloo_bypass::verbs
