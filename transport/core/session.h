// One reliable, message-oriented conversation with one peer over unreliable datagrams. Pure: no I/O, clock, thread,
// lock, environment or random numbers. Time and entropy come in as arguments; datagrams and events leave by polling.
//
//   handleDatagram(now, bytes)  when one arrived for this session        \   after any of these:
//   handleTimeout(now)          when now >= pollTimeout()                 >  pollTransmit until nothing,
//   postSend/postReceive/...    the user's operations                    /   pollEvent until nothing, pollTimeout
//
// Rails: further sessions to the same peer, each over a path of its own, that carry chunks of the first one's long
// messages. A rail has a handshake, congestion control, retransmissions and keep-alive of its own, and no messages; it
// takes chunks as its path has room, so each path carries its share. What is posted, announced, granted and closed is
// the first session's, and a chunk that arrives over a rail is the first one's too. Both ends pair their rails alike.
//
//             connect            handshake done                 close, everything delivered, or linger over
//   kIdle ------------> kConnecting ------------> kEstablished ----> kClosing ----------> kClosed
//                            |                        | peer's kClose                        ^
//                            |                        v                                      |
//                            |                   kPeerClosed ------------ close -------------+ (stays a moment to
//                            +--> kFailed <-- peer's kReset, silence, violation, link down      resend lost answers)
//
// kClose is given a sequence number after everything else, and processed when everything before it has arrived: the
// peer then has all that was sent. close(abort) goes to kClosed at once and tries one kReset.
//
// Owner: whoever made it; one thread at a time. Sizes in bytes.
//
// The methods are in session.cc (the user's calls and the life cycle), session_receive.cc, session_transmit.cc,
// session_path_mtu.cc, session_repair.cc and session_timers.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/base/config.h"
#include "transport/base/duration_histogram.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/channel/channel_counters.h"
#include "transport/channel/message.h"
#include "transport/core/ack_tracker.h"
#include "transport/core/congestion.h"
#include "transport/core/congestion/pacer.h"
#include "transport/core/frame_pieces.h"
#include "transport/core/handshake.h"
#include "transport/core/incoming_messages.h"
#include "transport/core/loss_detector.h"
#include "transport/core/path_probe.h"
#include "transport/core/repair/redundancy.h"
#include "transport/core/repair/repair_decoder.h"
#include "transport/core/repair/repair_encoder.h"
#include "transport/core/return_queue.h"
#include "transport/core/rto_estimator.h"
#include "transport/core/send_queue.h"
#include "transport/core/send_scoreboard.h"
#include "transport/core/session_event.h"
#include "transport/wire/packet.h"
#include "transport/wire/sealed_packet.h"

namespace gloo_bypass {

// A datagram to send. `header` is valid until the next non-const call, and `payload` too. A lasting one is in the
// buffer of a send that is not complete, and so valid until the user hears of its end, cancels it, or closes the
// session.
struct SessionDatagram {
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  bool lasting = false;
};

// The messages of a session, and what else its rails share.
struct SharedMessages {
  SharedMessages(const SessionConfig& config, std::uint64_t seed);

  RingQueue<SessionEvent> events;
  RingQueue<ControlFrame> controls;
  ChannelCounters counters;
  SendQueue sends;
  IncomingMessages incoming;
  std::size_t windowBytes = 0;  // congestion windows of the session and its rails
  bool discarding = false;      // close() was called: what arrives is acknowledged and thrown away
  bool over = false;            // nothing is carried any more: slots and receives are gone
};

class Session {
 public:
  // Ids are 64 random bits each, exchanged out of band (the rendezvous store). A datagram carries its RECEIVER's.
  // `entropy`: random bits for jitter, initial sequence numbers and hashes. The peer does not know them.
  // With `lead` this is a rail of that session, which has not connected yet. The user calls only connect() and fail()
  // of a rail. After any call of a rail the lead may have something to send or to tell; hasParts() says when a rail
  // has. A rail ends with its lead: it sends nothing more, and is drained. When a rail fails, parts of messages are
  // lost, and the user must fail the lead too.
  Session(const SessionConfig& config, std::uint64_t localId, std::uint64_t entropy, const Session* lead = nullptr);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The id of the session a datagram is for, without further checks; nullopt: not ours (magic, version, too short).
  // For an endpoint that demultiplexes.
  static std::optional<std::uint64_t> receiverId(std::span<const std::byte> datagram) {
    return wire::peekReceiverId(datagram);
  }

  // Before connect(), what the configuration could not know: the link loses nothing; it checks what it carries; its
  // datagrams are sealed, and then handleDatagram() gets only authentic ones, opened, and the sizes of connect() are
  // those of plain datagrams.
  void markLossless();
  void markVerified();
  void markSealed();
  // Handshake begins (both sides call it). `maxDatagramBytes`: what the link to this peer carries now. Where it may
  // lose datagrams, those above `firstDatagramBytes` are used once a probe has passed.
  void connect(TimePoint now, std::uint64_t remoteId, std::size_t maxDatagramBytes,
               std::size_t firstDatagramBytes = wire::kEthernetDatagramBytes);
  // Good order: sent messages are delivered first; `abort`: the peer fails at once, by a RESET datagram, and another
  // for what it still sends within the time wait. Unsent payload of user buffers is copied into the session (bounded)
  // before close returns.
  void close(TimePoint now, bool abort);
  // From outside: a plain datagram of `bytes` may be too large for the path.
  void suspectDatagramSize(TimePoint now, std::size_t bytes) { path_.mtu.suspect(now, bytes); }
  // From outside, and without proof: the network says that the peer's port is closed. The peer is asked at once, and
  // several times a second while it is silent. True: this has been said for 3 s, and nothing has come from the peer.
  bool onPortUnreachable(TimePoint now);
  // From outside, in kFailed: more about the reason.
  void explainFailure(const std::string& reason) { error_.message += "; " + reason; }
  // From outside: the link broke. Pending operations are forgotten, the state becomes kFailed. `tellPeer`: by the link,
  // if it is another that broke.
  void fail(const Error& error, bool tellPeer = false);

  Status postSend(const SendRequest& request);
  Status postReceive(const ReceiveRequest& request);
  bool cancelSend(OperationToken token);
  bool cancelReceive(OperationToken token);
  // As MessageChannel::oldestUnmatched.
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const { return incoming_.oldestUnmatched(key); }

  void handleDatagram(TimePoint now, std::span<const std::byte> datagram);
  void handleTimeout(TimePoint now);
  // Next datagram, or false: nothing may go out now (nothing to send, window or pacing: see pollTimeout).
  bool pollTransmit(TimePoint now, SessionDatagram* out);
  // The port took nothing: the datagram of the last pollTransmit was NOT sent. The session sends it later.
  void undoTransmit();
  bool pollEvent(SessionEvent* out);
  bool toTell() const { return !events_.empty(); }  // pollEvent() would give something
  // Whether rails could send something now.
  bool hasParts() const { return live() && sends_.partReady({wire::kMinDatagramBytes, wire::kMinDatagramBytes}); }
  // When handleTimeout or pollTransmit is due although nothing arrives (RTO, probe, delayed ack, pacing, keep-alive).
  TimePoint pollTimeout() const;

  SessionState state() const { return state_; }
  bool peerHeard() const { return handshake_.heard(); }  // its Hello has arrived
  const Error& error() const { return error_; }          // only in kFailed
  // Nothing left to send or to be acknowledged, and the close handshake is over: the owner may destroy it.
  bool drained() const;
  ChannelCounters counters() const { return counters_; }
  PathFigures path() const;
  // Adds the round-trip times measured from now on to `histogram` too, which must outlive the session; null: stops.
  void recordRttIn(DurationHistogram* histogram) { path_.rttHistogram = histogram; }
  // Bytes held now: send buffer, staged receives, bookkeeping. For tests of the memory bound.
  std::size_t memoryBytes() const;

 private:
  enum class Sent : std::uint8_t { kNothing, kFrame, kAck, kHello, kProbe, kProbeReply, kReset, kRepair, kPiece };

  // The content of a numbered frame; without a message it is only a size.
  struct FrameContent {
    std::span<const std::byte> payload;
    std::size_t padding = 0;
    std::size_t wireBytes = wire::kCommonHeaderBytes + 8;
  };

  // session.cc
  wire::Hello localHello() const;
  // The lead has ended, and this rail with it.
  bool leadIsOver() const { return isRail() && shared_->over; }
  void setState(SessionState state);
  void enterFailed(const Error& error, bool tellPeer);
  void violate(const std::string& what);
  void establish(TimePoint now);
  bool isBeyond(Duration roundTrip, bool before) const;
  Duration pathRtt() const;
  void choosePath();
  void chooseController();
  void resizeBuffers();
  void enterPeerClosed(TimePoint now);
  void becomeClosed(TimePoint now);
  void abandon(TimePoint now);
  TimePoint timeWaitEnd(TimePoint now) const;
  void awaitLostReset(TimePoint now);
  void repeatReset(TimePoint now, wire::FrameType heard);
  void forgetEvents(SessionEvent::Type type, OperationToken token);
  void dropUnderWay();  // all but what has arrived
  void dropEverything();
  bool isRail() const { return own_ != shared_; }
  bool live() const { return state_ != SessionState::kFailed && state_ != SessionState::kClosed; }

  // session_receive.cc
  bool accept(std::span<const std::byte> datagram, wire::ParseResult result, const wire::PacketHeader& header);
  void rejectVersion(const wire::PacketHeader& header);
  void handleReset(const wire::ParsedPacket& packet);
  void handleContent(TimePoint now, const wire::ParsedPacket& packet, std::size_t datagramBytes);
  void handleHello(TimePoint now, const wire::ParsedPacket& packet);
  void handleEcho(TimePoint now, const wire::PacketHeader& header);
  void suspectLossProbe(TimePoint now);
  bool noteArrivalEchoed(TimePoint now, const wire::ParsedPacket& packet);
  bool handleAcknowledgement(TimePoint now, const wire::ParsedPacket& packet);
  bool acknowledgeRange(TimePoint now, std::uint64_t begin, std::uint64_t end, const wire::PacketHeader& header);
  void finishAcknowledgement(TimePoint now, std::size_t lostBytes);
  void handleFrame(TimePoint now, const wire::ParsedPacket& packet);
  void handleFrameBody(TimePoint now, const wire::ParsedPacket& packet);
  void handleMessageFrame(TimePoint now, const wire::ParsedPacket& packet);

  // session_transmit.cc
  // Where the link checks what it carries by 16 bits, ours are added where they cost little beside the path's delay,
  // and where more machines have handled the bytes.
  bool addsChecksum() const {
    return checksum_ || (config_.payloadChecksum == PayloadChecksum::kAuto && config_.verifiedLink &&
                         !config_.sealedLink && (path_.isLong || repair_.active));
  }
  wire::HeaderChecksum headerChecksum() const {
    return config_.sealedLink ? wire::HeaderChecksum::kNone : wire::HeaderChecksum::kCrc32c;
  }
  // Bytes that sealing adds to each datagram.
  std::size_t sealBytes() const { return config_.sealedLink ? wire::kSealTagBytes : 0; }
  std::uint32_t ticks(TimePoint now) const;
  void beginHeader(TimePoint now, wire::FrameType type, wire::PacketHeader* header) const;
  bool give(SessionDatagram* out, Sent what, std::span<const std::byte> payload = {});
  bool sendAck(TimePoint now, SessionDatagram* out);
  wire::MessageHeader describeMessage(const SentFrame& frame) const;
  void fillContent(const SentFrame& frame, FrameContent* content, wire::PacketHeader* header) const;
  void writeFrame(const SentFrame& frame, const FrameContent& content, const wire::PacketHeader& header);
  void noteFrameSent(TimePoint now, std::uint64_t sequence, std::size_t wireBytes);
  bool sendFrame(TimePoint now, std::uint64_t sequence, SessionDatagram* out);
  bool sendHello(TimePoint now, SessionDatagram* out);
  bool sendReset(TimePoint now, SessionDatagram* out);
  bool nextDatagram(TimePoint now, SessionDatagram* out);
  bool mayTransmitFrame(TimePoint now);
  bool nextFrame(TimePoint now, std::uint64_t* sequence);
  bool nextLossProbe(std::uint64_t* sequence);
  bool openControl(std::uint64_t* sequence);
  bool openPlanned(const ChunkSizes& sizes, std::uint64_t* sequence);
  void settleLast();
  void queueControls();
  void requestAckWhereUseful(SentFrame* frame);
  void countInFlight(SentFrame* frame, std::size_t wireBytes, bool covered);
  // Where chunks need no padding they may have short headers.
  bool takesChunks() const { return !config_.losslessLink; }
  bool sendsChunks() const {
    return takesChunks() && (handshake_.remote()->capabilities & wire::kCapabilityChunks) != 0;
  }
  std::size_t chunkBytes(wire::FrameType type) const;
  ChunkSizes chunkSizes() const;

  // session_path_mtu.cc
  bool sendProbe(TimePoint now, SessionDatagram* out);
  bool sendProbeReply(TimePoint now, SessionDatagram* out);
  void handleProbe(const wire::ParsedPacket& packet, std::size_t datagramBytes);
  void handleProbeReply(TimePoint now, const wire::ParsedPacket& packet);
  void onOtherDatagramSize();
  void onShrunkPath();
  bool canShrink(bool toNarrow) const;
  // Whether the frame was cut for a path that carried more.
  bool exceedsPath(const SentFrame& frame) const {
    return frame.length > path_.mtu.confirmed() - wire::dataHeaderBytes(frame.type);
  }
  // Below what every version sends.
  bool isNarrow() const { return path_.mtu.confirmed() < wire::kUsualMinDatagramBytes; }
  bool sendPiece(TimePoint now, std::uint64_t sequence, SessionDatagram* out);
  void cutIntoPieces(std::uint64_t sequence);
  void handlePiece(TimePoint now, const wire::ParsedPacket& packet);

  // session_repair.cc
  bool mayRepair() const;
  void chooseRepair();
  void stopCovering();
  std::uint64_t sentFrames() const { return board_.next() - firstSent_; }
  std::size_t repairsFor(std::size_t sources, std::size_t limit) const;
  void startBlock(TimePoint now, std::uint64_t sequence);
  void endBlock();
  bool coverFrame(TimePoint now, std::uint64_t sequence);
  void addToBlock(TimePoint now, std::uint64_t sequence, std::uint32_t payloadCrc, const SessionDatagram& datagram);
  TimePoint repairDeadline() const;
  bool repairDue() const;
  bool sendRepair(TimePoint now, SessionDatagram* out);
  void undoRepair();
  std::size_t detectLosses(TimePoint now);
  bool noteRepaired(TimePoint now, const wire::ParsedPacket& packet, std::size_t* lostBytes);
  void handleCovered(TimePoint now, const wire::ParsedPacket& packet);
  void handleRepair(TimePoint now, const wire::ParsedPacket& packet);
  void takeRecovered(TimePoint now);
  bool handleSymbol(TimePoint now, std::uint64_t sequence, const FrameSymbol& frame);
  void dropRepair();

  // session_timers.cc
  Duration rto() const { return path_.rtt.rto(kPeerAckDelay); }
  TimePoint lossProbeDeadline() const;
  TimePoint silenceDeadline() const;
  void ask(TimePoint now);
  bool isRefused() const { return liveness_.refusedSince > liveness_.lastReceivedAt; }
  void onLossProbeTimeout(TimePoint now);
  void checkSilence(TimePoint now);

  static constexpr Duration kPeerAckDelay = std::chrono::milliseconds(1);
  // An acknowledgement that goes alone is a frame of 98 bytes: one for two frames of 1,514 would be 3.5 % of the
  // payload, more or less as the receiver comes round. Senders with few frames under way request theirs.
  static constexpr unsigned kAckEvery = 8, kLosslessAckEvery = 64;

  // The path to the peer as it is measured, and how fast it is used.
  struct Path {
    RtoEstimator rtt;
    ReturnQueue returnQueue;
    Duration latestReturnQueue{0};  // of the latest round trip
    DurationHistogram* rttHistogram = nullptr;
    std::optional<std::uint32_t> lastEcho;  // ticks: of the echo that gave the latest round trip
    std::unique_ptr<CongestionController> congestion;
    Pacer pacer;
    bool pacingBlocked = false;
    PathProbe mtu;
    std::size_t linkDatagramBytes = 0,
                firstDatagramBytes = 0;  // from connect(): what the link carries, and what to begin with
    std::uint16_t probeReplyDue = 0;     // size; 0: none
    std::size_t countedWindow = 0;       // this path's part of SharedMessages::windowBytes
    bool isLong = false;                 // from longPathRtt on
    bool fitsBbr = false;                // from bbrRtt on
  };

  // When something last came and went, and the probes sent after a silence.
  struct Liveness {
    TimePoint lastReceivedAt{}, lastSentAt{}, lastPingAt{};
    TimePoint refusedSince{};  // counts while it is later than lastReceivedAt: onPortUnreachable()
    bool pingDue = false, pongDue = false;
    bool lossProbeDue = false;
    TimePoint timerSince{};        // the loss probe's timer runs from here or later
    std::uint32_t probeDueAt = 0;  // ticks: when the latest loss probe fell due
    unsigned unanswered = 0;       // loss probes since something was last acknowledged or found lost
  };

  // Repair frames. Encoder and decoder are made when first needed.
  struct RepairState {
    std::unique_ptr<RepairEncoder> encoder;
    std::unique_ptr<RepairDecoder> decoder;
    bool active = false;     // new frames are covered
    double coverFactor = 1;  // a frame of the block, with its share of the repair frames, to its own bytes
    LossEstimate lossEstimate;
    LossMargin margin;
    RepairBudget budget;
    TimePoint marginRaisedAt{};
    std::uint64_t recovered = 0;  // frames recovered here; those that were only late are taken off
    std::uint64_t recoveredTold = 0;
    std::uint64_t peerRecovered = 0;
    std::uint32_t peerReportedAt = 0;  // the peer's timestamp of that
    TimePoint peerReportArrivedAt{};
  };

  // The end of the session, from either side.
  struct Ending {
    bool closeQueued = false;
    bool resetDue = false;
    bool tellsPeer = false;                          // kFailed, kClosed: the peer is to hear of the failure
    TimePoint resetAgainAt{};                        // at the earliest, if the peer goes on
    std::optional<std::uint64_t> closeSequence;      // ours
    std::optional<std::uint64_t> peerCloseSequence;  // theirs, waiting for what is before it
    TimePoint deadline = kNever;                     // linger (kClosing) or time wait (kClosed)
  };

  // The datagram of the last pollTransmit, for undoTransmit.
  struct Given {
    Sent what = Sent::kNothing;
    std::uint64_t sequence = 0;
    std::size_t bytes = 0;
    bool pinged = false;  // the acknowledgement requested one
  };

  SessionConfig config_;
  const std::uint64_t localId_, entropy_;
  std::uint64_t remoteId_ = 0;
  bool checksum_;  // agreed: payload without one is a violation
  SessionState state_ = SessionState::kIdle;
  Error error_;

  const std::shared_ptr<SharedMessages> own_;
  const std::shared_ptr<SharedMessages> shared_;  // own_, or the lead's
  RingQueue<SessionEvent>& events_ = own_->events;
  RingQueue<ControlFrame>& controls_ = own_->controls;
  ChannelCounters& counters_ = own_->counters;
  SendQueue& sends_ = shared_->sends;
  IncomingMessages& incoming_ = shared_->incoming;
  Handshake handshake_;
  Path path_;
  Liveness liveness_;
  RepairState repair_;
  Ending ending_;
  PieceSender piecesOut_;
  PieceGatherer piecesIn_;

  AckTracker acks_;
  const std::uint32_t initialSequence_;
  SendScoreboard board_;
  const std::uint64_t firstSent_;
  LossDetector losses_;
  bool creditQueued_ = false;  // one kCredit frame is under way
  std::size_t sentSinceAckRequest_ = 0;

  wire::PacketWriter writer_;
  Given given_;
  std::optional<std::uint64_t> undone_;  // goes out before anything else
};

}  // namespace gloo_bypass
