// What goes out. Order: a datagram the port refused, acknowledgements that report gaps, repetitions, control frames, then
// messages; every datagram carries the cumulative acknowledgement and the limits, so a pure acknowledgement goes out only
// where nothing else does.
#include <algorithm>
#include <utility>

#include "transport/base/sequence.h"
#include "transport/core/session_impl.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass {

std::uint32_t Session::Impl::ticks(TimePoint now) const {
  return static_cast<std::uint32_t>(now.time_since_epoch().count() / kTickNanoseconds);
}

void Session::Impl::beginHeader(TimePoint now, FrameType type, PacketHeader* header) const {
  header->type = type;
  header->receiverId = remoteId_;
  header->sequence = truncateSequence(board_.next());
  header->timestamp = ticks(now);
  header->messageLimit = truncateSequence(incoming_.messageLimit());
  header->byteLimit = const_cast<IncomingMessages&>(incoming_).credit().limit();
  acks_.fillHeader(now, header);
}

bool Session::Impl::give(SessionDatagram* out, Sent what, std::span<const std::byte> payload) {
  out->header = writer_.finish();
  out->payload = payload;
  last_ = what;
  lastBytes_ = out->header.size() + payload.size();
  ++counters_.packetsSent;
  counters_.wireBytesSent += lastBytes_;
  return true;
}

bool Session::Impl::sendHello(TimePoint now, SessionDatagram* out) {
  PacketHeader header;
  beginHeader(now, FrameType::kHello, &header);
  if (handshake_.heard()) header.flags |= kFlagHelloSeen;
  writer_.begin(header);
  writer_.hello(localHello());
  handshake_.onSent(now);
  return give(out, Sent::kHello);
}

bool Session::Impl::sendReset(TimePoint now, SessionDatagram* out) {
  PacketHeader header;
  beginHeader(now, FrameType::kReset, &header);
  writer_.begin(header);
  writer_.reason(static_cast<std::uint32_t>(state_ == SessionState::kFailed ? error_.code : ErrorCode::kCancelled));
  resetDue_ = false;
  return give(out, Sent::kReset);
}

bool Session::Impl::sendAck(TimePoint now, SessionDatagram* out) {
  PacketHeader header;
  beginHeader(now, FrameType::kAck, &header);
  if (pingDue_) header.flags |= kFlagAckRequested;
  lastPinged_ = std::exchange(pingDue_, false);
  writer_.begin(header);
  acks_.writeRanges(&writer_);
  if (recovered_ != 0) writer_.recovered(truncateSequence(recovered_));
  recoveredTold_ = recovered_;
  acks_.onAckSent();
  pongDue_ = false;
  return give(out, Sent::kAck);
}

bool Session::Impl::sendProbe(TimePoint now, SessionDatagram* out) {
  static constexpr std::array<std::byte, kMaxDatagramBytes> kPadding{};
  PacketHeader header;
  beginHeader(now, FrameType::kProbe, &header);
  writer_.begin(header);
  writer_.size(static_cast<std::uint16_t>(probe_.candidate()));
  probe_.onSent(now, std::max<Duration>(rto(), std::chrono::milliseconds(20)));
  constexpr std::size_t kProbeHeaderBytes = kCommonHeaderBytes + 2;
  return give(out, Sent::kProbe, std::span(kPadding).first(probe_.candidate() - kProbeHeaderBytes));
}

bool Session::Impl::sendProbeReply(TimePoint now, SessionDatagram* out) {
  PacketHeader header;
  beginHeader(now, FrameType::kProbeReply, &header);
  writer_.begin(header);
  writer_.size(probeReplyDue_);
  probeReplyDue_ = 0;
  return give(out, Sent::kProbeReply);
}

// Acknowledgements come rarely: ask before the window is full, four times in it, so that one of a few datagrams waits for no delay.
void Session::Impl::requestAckWhereUseful(SentFrame* frame) {
  const std::size_t window = congestion_->windowBytes();
  sentSinceAckRequest_ += frame->wireBytes;
  const bool rare = config_.losslessLink || window < 4 * kAckEvery * std::size_t{frame->wireBytes};
  if (rare && sentSinceAckRequest_ >= window / 4) frame->ackRequested = true;
  if (frame->ackRequested) sentSinceAckRequest_ = 0;
}

// A covered frame stands for its share of the block's repair frames too, which nobody acknowledges.
void Session::Impl::countInFlight(SentFrame* frame, std::size_t wireBytes, bool covered) {
  if (frame->state == FrameState::kInFlight) return;  // a probe: it is counted already
  frame->guard = covered ? SendScoreboard::kGuardOpen : 0;
  if (covered) wireBytes = static_cast<std::size_t>(static_cast<double>(wireBytes) * coverFactor_);
  frame->wireBytes = static_cast<std::uint16_t>(std::min(wireBytes, kMaxDatagramBytes));
}

bool Session::Impl::sendFrame(TimePoint now, std::uint64_t sequence, SessionDatagram* out) {
  SentFrame& frame = board_.frame(sequence);
  const bool covered = repairing_ && frame.state == FrameState::kUnsent && coverFrame(now, sequence);
  PacketHeader header;
  beginHeader(now, frame.type, &header);
  header.sequence = truncateSequence(sequence);
  if (covered) header.flags |= kFlagCovered;
  std::span<const std::byte> payload;
  std::size_t padding = 0;
  MessageHeader message;
  std::size_t wireBytes = kCommonHeaderBytes + 8;
  if (frame.message != kNoSlot) {
    message = sends_.describe(frame.message);
    message.chunkOffset = frame.type == FrameType::kAnnounce ? sends_.eagerEnd(frame.message) : frame.number;
    message.chunkLength = frame.length;
    message.flags = frame.flags;
    if (frame.length > 0) payload = {sends_.payload(frame.message, frame.number), frame.length};
    if (checksum_ && frame.type == FrameType::kData) {
      header.flags |= kFlagPayloadChecksum;
      header.payloadCrc = crc32c(payload);
    }
    if (config_.losslessLink && payload.size() >= kAlignFromBytes) {
      padding = (reinterpret_cast<std::uintptr_t>(payload.data()) - kOuterHeaderBytes - kDataHeaderBytes) % 64;
    }
    wireBytes = kDataHeaderBytes + padding + frame.length;
  }
  countInFlight(&frame, wireBytes, covered);
  requestAckWhereUseful(&frame);
  if (frame.ackRequested) header.flags |= kFlagAckRequested;
  writer_.begin(header);
  if (frame.message != kNoSlot) {
    writer_.messageHeader(message);
    writer_.padding(padding);
  } else if (frame.type != FrameType::kCredit) {
    writer_.number(frame.number);
  }
  if (!board_.anyInFlight()) timerSince_ = now;
  board_.onSent(now, sequence);
  if (frame.retransmitted) ++counters_.retransmits;
  congestion_->onSent(now, frame.wireBytes, board_.inFlightBytes());
  pacer_.onSent(now, wireBytes);
  lastSentAt_ = now;
  lastSequence_ = sequence;
  if (!acks_.hasGaps()) acks_.onAckSent();
  give(out, Sent::kFrame, payload);
  if (covered) addToBlock(now, sequence, header.payloadCrc, *out);
  return true;
}

bool Session::Impl::mayTransmitFrame(TimePoint now) {
  // The last datagram may reach over the window's end: its size is not known here, and may be far below the largest.
  if (board_.anyInFlight() && board_.inFlightBytes() >= congestion_->windowBytes()) return false;
  if (pacer_.mayReleaseAt(now)) return true;
  pacingBlocked_ = true;
  return false;
}

void Session::Impl::queueControls() {
  if (!discarding_ && !creditQueued_ && incoming_.limitsDue()) {
    creditQueued_ = true;
    incoming_.onLimitsTold();
    controls_.pushBack({FrameType::kCredit, 0});
  }
  if (state_ == SessionState::kClosing && !closeQueued_ && sends_.allSent()) {
    closeQueued_ = true;
    controls_.pushBack({FrameType::kClose, sends_.introduced()});
  }
}

bool Session::Impl::openControl(std::uint64_t* sequence) {
  if (controls_.empty() || board_.full()) return false;
  const ControlFrame control = controls_.popFront();
  *sequence = board_.open();
  SentFrame& frame = board_.frame(*sequence);
  frame.type = control.type;
  frame.number = control.number;
  if (control.type == FrameType::kClose) {
    closeSequence_ = *sequence;
    frame.ackRequested = true;
  }
  return true;
}

bool Session::Impl::openPlanned(std::uint64_t* sequence) {
  FramePlan plan;
  if (board_.full() || !sends_.next(chunkBytes(), &plan)) return false;
  *sequence = board_.open();
  SentFrame& frame = board_.frame(*sequence);
  frame.type = plan.type;
  frame.message = plan.message;
  frame.number = plan.offset;
  frame.length = plan.length;
  frame.flags = plan.flags;
  frame.ackRequested = plan.ackRequested;
  return true;
}

// After a silence: something new if there is anything, else, where a round trip is dear or the first question was not answered, a frame
// under way: the last one, behind which the answer shows all gaps, or from the oldest on.
bool Session::Impl::nextLossProbe(std::uint64_t* sequence) {
  const bool again = rto_.backOffs() > 1;
  const bool bare = rto_.minimum() <= kBareQuestionMaxRtt;
  queueControls();
  if (openControl(sequence) || openPlanned(sequence)) {
    pingDue_ = pingDue_ || again;
  } else {
    pingDue_ = pingDue_ || again || bare;
    if (!(again ? board_.oldestInFlight(sequence) : !bare && board_.highestInFlight(sequence))) return false;
  }
  board_.frame(*sequence).ackRequested = true;
  return true;
}

// The next frame with a sequence number; false: none, or none may go now.
bool Session::Impl::nextFrame(TimePoint now, std::uint64_t* sequence) {
  if (undone_) {
    *sequence = *undone_;
    undone_.reset();
    if (*sequence >= board_.base() && board_.frame(*sequence).state != FrameState::kAcknowledged) return true;
  }
  if (std::exchange(lossProbeDue_, false) && nextLossProbe(sequence)) return true;
  queueControls();
  const bool lost = board_.anyLost();
  if (!lost && controls_.empty() && !sends_.ready(chunkBytes())) {
    if (board_.inFlightBytes() < congestion_->windowBytes()) board_.markAppLimited();
    return false;
  }
  if (!mayTransmitFrame(now)) return false;
  if (lost) return board_.nextLost(sequence);
  return openControl(sequence) || openPlanned(sequence);
}

// The datagram given last was not refused. On a lossless link it will not be sent again either: its part of the user's
// buffer is free.
void Session::Impl::settleLast() {
  if (std::exchange(last_, Sent::kNothing) != Sent::kFrame || !config_.losslessLink) return;
  if (!live() || lastSequence_ < board_.base()) return;
  const SentFrame& frame = board_.frame(lastSequence_);
  if (frame.type == FrameType::kData && frame.state == FrameState::kInFlight) {
    sends_.onHandedOver(frame.message, frame.length);
  }
}

bool Session::Impl::pollTransmit(TimePoint now, SessionDatagram* out) {
  settleLast();
  pacingBlocked_ = false;
  const bool any = nextDatagram(now, out);
  pacer_.setBacklogged(any || pacingBlocked_);
  return any;
}

bool Session::Impl::nextDatagram(TimePoint now, SessionDatagram* out) {
  if (resetDue_) return sendReset(now, out);
  if (handshake_.due() && remoteId_ != 0) return sendHello(now, out);
  if (state_ == SessionState::kFailed || state_ == SessionState::kIdle || !handshake_.done()) return false;
  if (pongDue_ || (acks_.ackDue(now) && (acks_.hasGaps() || recovered_ != recoveredTold_))) return sendAck(now, out);
  if (probeReplyDue_ != 0) return sendProbeReply(now, out);
  std::uint64_t sequence;
  if (state_ != SessionState::kClosed && state_ != SessionState::kPeerClosed) {
    if (repairDue()) {
      if (pacer_.mayReleaseAt(now)) return sendRepair(now, out);
      pacingBlocked_ = true;
    }
    if (nextFrame(now, &sequence)) return sendFrame(now, sequence, out);
    if (probe_.candidate() != 0 && probe_.due(now)) return sendProbe(now, out);
  }
  if (acks_.ackDue(now) || pingDue_) return sendAck(now, out);
  return false;
}

void Session::Impl::undoTransmit(TimePoint) {
  const Sent undone = last_;
  last_ = Sent::kNothing;
  if (undone == Sent::kNothing) return;
  --counters_.packetsSent;
  counters_.wireBytesSent -= lastBytes_;
  switch (undone) {
    case Sent::kFrame:
      if (!live() || lastSequence_ < board_.base()) return;
      if (board_.frame(lastSequence_).retransmitted) --counters_.retransmits;
      board_.undo(lastSequence_);
      pacer_.undo(lastBytes_);
      undone_ = lastSequence_;
      break;
    case Sent::kAck:
      pingDue_ = pingDue_ || lastPinged_;
      pongDue_ = true;
      break;
    case Sent::kHello:
      handshake_.makeDue();
      break;
    case Sent::kProbe:
      break;  // as if lost: the next try comes
    case Sent::kProbeReply:
      break;
    case Sent::kReset:
      resetDue_ = true;
      return;
    case Sent::kRepair:
      undoRepair();
      break;
    case Sent::kNothing:
      return;
  }
  acks_.requestAck();  // the acknowledgement on it did not go out
}

}  // namespace gloo_bypass
