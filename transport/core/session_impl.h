// The session's state, shared by session.cc (the user's calls and the life cycle), session_receive.cc, session_transmit.cc,
// session_repair.cc and session_timers.cc. Not for anybody else.
//
//             connect            handshake done                 close, everything delivered, or linger over
//   kIdle ------------> kConnecting ------------> kEstablished ----> kClosing ----------> kClosed
//                            |                        | peer's kClose                        ^
//                            |                        v                                      |
//                            |                   kPeerClosed ------------ close -------------+ (stays a moment to
//                            +--> kFailed <-- peer's kReset, silence, violation, link down      repeat lost answers)
//
// kClose is given a sequence number after everything else, and processed when everything before it has arrived: the peer
// then has all that was sent. close(abort) goes to kClosed at once and tries one kReset.
#pragma once

#include <memory>

#include "transport/core/ack_tracker.h"
#include "transport/core/congestion.h"
#include "transport/core/congestion/pacer.h"
#include "transport/core/handshake.h"
#include "transport/core/incoming_messages.h"
#include "transport/core/loss_detector.h"
#include "transport/core/path_probe.h"
#include "transport/core/repair/redundancy.h"
#include "transport/core/repair/repair_decoder.h"
#include "transport/core/repair/repair_encoder.h"
#include "transport/core/rto_estimator.h"
#include "transport/core/send_queue.h"
#include "transport/core/send_scoreboard.h"
#include "transport/core/session.h"

namespace gloo_bypass {

class Session::Impl {
 public:
  Impl(const SessionConfig& config, std::uint64_t localId, std::uint64_t entropy);

  // session.cc
  void connect(TimePoint now, std::uint64_t remoteId, std::size_t maxDatagramBytes);
  void close(TimePoint now, bool abort);
  void fail(const Error& error, bool tellPeer);
  Status postSend(TimePoint now, const SendRequest& request);
  Status postReceive(TimePoint now, const ReceiveRequest& request);
  bool cancelSend(TimePoint now, OperationToken token);
  bool cancelReceive(OperationToken token);
  bool pollEvent(SessionEvent* out);
  bool drained() const;
  ChannelCounters counters() const;
  std::size_t memoryBytes() const;
  void recordRttIn(DurationHistogram* histogram) { rttHistogram_ = histogram; }
  SessionState state() const { return state_; }
  const Error& error() const { return error_; }

  void handleDatagram(TimePoint now, std::span<const std::byte> datagram);  // session_receive.cc
  bool pollTransmit(TimePoint now, SessionDatagram* out);                   // session_transmit.cc
  void undoTransmit(TimePoint now);
  void handleTimeout(TimePoint now);                                        // session_timers.cc
  TimePoint pollTimeout() const;

 private:
  // What the last pollTransmit gave, for undoTransmit.
  enum class Sent : std::uint8_t { kNothing, kFrame, kAck, kHello, kProbe, kProbeReply, kReset, kRepair };

  // session.cc
  Hello localHello() const;
  void setState(SessionState state);
  void violate(const std::string& what);
  void establish(TimePoint now);
  bool isBeyond(Duration roundTrip, bool before) const;
  void choosePath();
  void chooseController();
  void onLargerDatagrams();
  void resizeBuffers();
  void enterPeerClosed(TimePoint now);
  void becomeClosed(TimePoint now);
  void dropEverything();
  bool live() const { return state_ != SessionState::kFailed && state_ != SessionState::kClosed; }

  // session_receive.cc
  void handleHello(TimePoint now, const ParsedPacket& packet);
  void handleEcho(TimePoint now, const PacketHeader& header);
  bool noteArrivalEchoed(TimePoint now, const ParsedPacket& packet);
  bool handleAcknowledgement(TimePoint now, const ParsedPacket& packet);
  bool acknowledgeRange(TimePoint now, std::uint64_t begin, std::uint64_t end, const PacketHeader& header);
  void finishAcknowledgement(TimePoint now, std::size_t lostBytes);
  void handleFrame(TimePoint now, const ParsedPacket& packet);
  void handleFrameBody(TimePoint now, const ParsedPacket& packet);
  void handleClose(TimePoint now);

  // session_transmit.cc
  std::uint32_t ticks(TimePoint now) const;
  void beginHeader(TimePoint now, FrameType type, PacketHeader* header) const;
  bool give(SessionDatagram* out, Sent what, std::span<const std::byte> payload = {});
  bool sendAck(TimePoint now, SessionDatagram* out);
  bool sendFrame(TimePoint now, std::uint64_t sequence, SessionDatagram* out);
  bool sendHello(TimePoint now, SessionDatagram* out);
  bool sendReset(TimePoint now, SessionDatagram* out);
  bool sendProbe(TimePoint now, SessionDatagram* out);
  bool sendProbeReply(TimePoint now, SessionDatagram* out);
  bool nextDatagram(TimePoint now, SessionDatagram* out);
  bool mayTransmitFrame(TimePoint now);
  bool nextFrame(TimePoint now, std::uint64_t* sequence);
  bool nextLossProbe(std::uint64_t* sequence);
  bool openControl(std::uint64_t* sequence);
  bool openPlanned(std::uint64_t* sequence);
  void settleLast();
  void queueControls();
  void requestAckWhereUseful(SentFrame* frame);
  void countInFlight(SentFrame* frame, std::size_t wireBytes, bool covered);
  std::size_t chunkBytes() const {
    if (!config_.losslessLink) {
      return probe_.confirmed() - kDataHeaderBytes - (repairing_ ? RepairEncoder::kChunkOverheadBytes : 0);
    }
    // Whole cache lines, so that every chunk of a message is aligned as its first one.
    return (probe_.confirmed() - kDataHeaderBytes - kMaxPaddingBytes) / 64 * 64;
  }

  // session_repair.cc
  bool mayRepair() const;
  void chooseRepair();
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
  bool noteRepaired(const ParsedPacket& packet, std::size_t* lostBytes);
  void handleCovered(TimePoint now, const ParsedPacket& packet);
  void handleRepair(TimePoint now, const ParsedPacket& packet);
  void takeRecovered(TimePoint now);
  void dropRepair();

  // session_timers.cc
  Duration rto() const { return rto_.rto(kPeerAckDelay); }
  TimePoint lossProbeDeadline() const;
  TimePoint silenceDeadline() const;
  void onLossProbeTimeout(TimePoint now);
  void checkSilence(TimePoint now);

  // Below it an acknowledgement is late only because the peer is busy; on memory links nothing is ever lost, and a
  // preempted peer must not be answered with copies into its full ring.
  static constexpr Duration kLosslessMinRto = std::chrono::milliseconds(200);
  static constexpr Duration kPeerAckDelay = std::chrono::milliseconds(1);
  static constexpr Duration kLosslessAckDelay = std::chrono::milliseconds(5);
  // An acknowledgement that goes alone is a frame of 98 bytes: one for two frames of 1,514 would be 3.6 % of the payload, more or less as the
  // receiver comes round. Senders with few frames under way ask for theirs.
  static constexpr unsigned kAckEvery = 8, kLosslessAckEvery = 64;
  static constexpr std::size_t kShortPathSendBuffer = 4u << 20;
  // First credit and send buffer of a long path: TCP's tcp_rmem maximum is 6 MiB; autotuning goes on from here.
  static constexpr std::size_t kLongPathFirstWindow = 4u << 20;
  // Up to here the first question after a silence is a bare header: a round trip lost to it is less than what a peer waits for a
  // core, which is the likelier reason, and then a frame would have been sent for nothing.
  static constexpr Duration kBareQuestionMaxRtt = std::chrono::milliseconds(5);
  // RFC 9002, 7.6.1: what was sent over three probe timeouts is lost. With back-off these are so many lost questions and one answered.
  static constexpr unsigned kPersistentQuestions = 2;
  // Before our header in a frame: Ethernet, IPv4 and UDP.
  static constexpr std::size_t kOuterHeaderBytes = 42;
  // A chunk below this is not worth aligning.
  static constexpr std::size_t kAlignFromBytes = 1024;
  // A thread that wants to run waits hardly longer for its core.
  static constexpr Duration kMostLateness = std::chrono::milliseconds(30);
  static constexpr Duration kLinger = std::chrono::seconds(30);
  // How long a closed session answers what the peer repeats because our last acknowledgement was lost.
  static constexpr Duration kMaxTimeWait = std::chrono::seconds(1);

  SessionConfig config_;
  const std::uint64_t localId_, entropy_;
  std::uint64_t remoteId_ = 0;
  const bool checksum_;
  SessionState state_ = SessionState::kIdle;
  Error error_;

  RingQueue<SessionEvent> events_;
  RingQueue<ControlFrame> controls_;
  ChannelCounters counters_;

  Handshake handshake_;
  RtoEstimator rto_;
  DurationHistogram* rttHistogram_ = nullptr;
  AckTracker acks_;
  const std::uint32_t initialSequence_;
  SendScoreboard board_;
  const std::uint64_t firstSent_;
  LossDetector losses_;
  SendQueue sends_;
  IncomingMessages incoming_;
  PathProbe probe_;
  std::unique_ptr<CongestionController> congestion_;
  Pacer pacer_;

  std::size_t linkDatagramBytes_ = 0;  // what the link carries, told by connect()
  bool longPath_ = false;       // from longPathRtt on
  bool bbrPath_ = false;        // from bbrRtt on
  bool discarding_ = false;     // close() was called: what arrives is acknowledged and thrown away
  bool closeQueued_ = false;
  bool creditQueued_ = false;   // one kCredit frame is under way
  bool resetDue_ = false;
  bool pingDue_ = false, pongDue_ = false;
  bool lossProbeDue_ = false;
  unsigned unanswered_ = 0;     // loss probes since something was last acknowledged or found lost
  std::uint32_t askedAt_ = 0;   // ticks: when the latest loss probe fell due
  bool pacingBlocked_ = false;
  std::uint16_t probeReplyDue_ = 0;  // size; 0: none
  std::optional<std::uint64_t> closeSequence_;      // ours
  std::optional<std::uint64_t> peerCloseSequence_;  // theirs, waiting for what is before it
  std::optional<std::uint64_t> undone_;             // goes out before anything else

  std::uint32_t lastEcho_ = 0;
  bool haveLastEcho_ = false;
  TimePoint lastReceivedAt_{}, lastSentAt_{}, lastPingAt_{};
  TimePoint timerSince_{};      // the loss probe's timer runs from here or later
  TimePoint endsAt_ = kNever;   // linger (kClosing) or time wait (kClosed)
  std::size_t sentSinceAckRequest_ = 0;

  // Repair. Made when first needed.
  std::unique_ptr<RepairEncoder> encoder_;
  std::unique_ptr<RepairDecoder> decoder_;
  bool repairing_ = false;       // new frames are covered
  double coverFactor_ = 1;       // a frame of the block, with its share of the repair frames, to its own bytes
  LossEstimate lossEstimate_;
  LossMargin lossMargin_;
  RepairBudget repairBudget_;
  TimePoint marginRaisedAt_{};
  std::uint64_t recovered_ = 0;  // frames found again; those that were only late are taken off
  std::uint64_t recoveredTold_ = 0;
  std::uint64_t peerRecovered_ = 0;
  std::uint32_t reportedAt_ = 0;  // the peer's timestamp of that

  PacketWriter writer_;
  Sent last_ = Sent::kNothing;
  std::uint64_t lastSequence_ = 0;
  std::size_t lastBytes_ = 0;
  bool lastPinged_ = false;  // the acknowledgement given last asked for one
};

}  // namespace gloo_bypass
