// Makes the datagrams that go out. Order: a datagram the port refused, acknowledgements that report gaps,
// retransmissions, control frames, then messages; every datagram carries the cumulative acknowledgement and the limits,
// so a pure acknowledgement goes out only where nothing else does.
#include <algorithm>
#include <utility>

#include "transport/base/sequence.h"
#include "transport/core/session.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass {
namespace {

// Up to here the first loss probe after a silence is a bare header: a round trip lost to it is less than what a peer
// waits for a core, which is the likelier reason, and then a frame would have been sent for nothing.
constexpr Duration kBareProbeMaxRtt = std::chrono::milliseconds(5);
// Before our header in a frame: Ethernet, IPv4 and UDP.
constexpr std::size_t kOuterHeaderBytes = 42;
// A chunk below this is not worth aligning.
constexpr std::size_t kAlignFromBytes = 1024;

}  // namespace

std::uint32_t Session::ticks(TimePoint now) const {
  return static_cast<std::uint32_t>(now.time_since_epoch().count() / wire::kTickNanoseconds);
}

void Session::beginHeader(TimePoint now, wire::FrameType type, wire::PacketHeader* header) const {
  header->type = type;
  header->receiverId = remoteId_;
  header->sequence = truncateSequence(board_.next());
  header->timestamp = ticks(now);
  header->messageLimit = truncateSequence(incoming_.messageLimit());
  header->byteLimit = incoming_.credit().limit();
  acks_.fillHeader(now, header);
}

bool Session::give(SessionDatagram* out, Sent what, std::span<const std::byte> payload) {
  out->header = writer_.finish(headerChecksum());
  out->payload = payload;
  out->lasting = false;
  given_.what = what;
  given_.bytes = out->header.size() + payload.size();
  ++counters_.packetsSent;
  counters_.wireBytesSent += given_.bytes + sealBytes();
  return true;
}

bool Session::sendHello(TimePoint now, SessionDatagram* out) {
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kHello, &header);
  if (handshake_.heard()) header.flags |= wire::kFlagHelloSeen;
  writer_.begin(header);
  writer_.hello(localHello());
  handshake_.onSent(now);
  return give(out, Sent::kHello);
}

bool Session::sendReset(TimePoint now, SessionDatagram* out) {
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kReset, &header);
  writer_.begin(header);
  writer_.reason(static_cast<std::uint32_t>(state_ == SessionState::kFailed ? error_.code : ErrorCode::kCancelled));
  ending_.resetDue = false;
  ending_.resetAgainAt = now + rto();
  return give(out, Sent::kReset);
}

bool Session::sendAck(TimePoint now, SessionDatagram* out) {
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kAck, &header);
  if (liveness_.pingDue) header.flags |= wire::kFlagAckRequested;
  given_.pinged = std::exchange(liveness_.pingDue, false);
  writer_.begin(header);
  acks_.writeRanges(&writer_);
  if (repair_.recovered != 0) writer_.recovered(truncateSequence(repair_.recovered));
  repair_.recoveredTold = repair_.recovered;
  acks_.onAckSent();
  liveness_.pongDue = false;
  return give(out, Sent::kAck);
}

// Acknowledgements come rarely: request one before the window is full, four times in it, so that one of a few datagrams
// waits for no delay.
void Session::requestAckWhereUseful(SentFrame* frame) {
  const std::size_t window = path_.congestion->windowBytes();
  sentSinceAckRequest_ += frame->wireBytes;
  const bool rare = config_.losslessLink || window < 4 * kAckEvery * std::size_t{frame->wireBytes};
  if (rare && sentSinceAckRequest_ >= window / 4) frame->ackRequested = true;
  if (frame->ackRequested) sentSinceAckRequest_ = 0;
}

// A covered frame stands for its share of the block's repair frames too, which nobody acknowledges.
void Session::countInFlight(SentFrame* frame, std::size_t wireBytes, bool covered) {
  if (frame->state == FrameState::kInFlight) return;  // a probe: it is counted already
  frame->guard = covered ? SendScoreboard::kGuardOpen : 0;
  if (covered) wireBytes = static_cast<std::size_t>(static_cast<double>(wireBytes) * repair_.coverFactor);
  frame->wireBytes = static_cast<std::uint16_t>(std::min(wireBytes, wire::kMaxDatagramBytes));
}

std::size_t Session::chunkBytes(wire::FrameType type) const {
  const std::size_t datagram = path_.mtu.confirmed();
  if (config_.losslessLink) {
    // Whole cache lines, so that every chunk of a message is aligned as its first one.
    return (datagram - wire::dataHeaderBytes(type) - wire::kMaxPaddingBytes) / 64 * 64;
  }
  // The frame's symbol must fit into a repair frame.
  if (repair_.active) return RepairEncoder::symbolBytes(datagram) - kSymbolHeaderBytes - wire::messageBytes(type);
  return datagram - wire::dataHeaderBytes(type);
}

ChunkSizes Session::chunkSizes() const {
  const bool compact = sendsChunks();
  const std::size_t whole = chunkBytes(wire::FrameType::kData);
  return {whole, compact ? chunkBytes(wire::FrameType::kChunk) : whole, compact};
}

wire::MessageHeader Session::describeMessage(const SentFrame& frame) const {
  wire::MessageHeader message = sends_.describe(frame.message);
  message.chunkOffset = frame.type == wire::FrameType::kAnnounce ? sends_.eagerEnd(frame.message) : frame.number;
  message.chunkLength = frame.length;
  message.flags = frame.flags;
  return message;
}

// Fills in a message frame's payload, and the padding that aligns it in the receiver's memory.
void Session::fillContent(const SentFrame& frame, FrameContent* content, wire::PacketHeader* header) const {
  std::span<const std::byte>& payload = content->payload;
  if (frame.length > 0) payload = {sends_.payload(frame.message, frame.number), frame.length};
  if (wire::isData(frame.type) && addsChecksum()) {
    header->flags |= wire::kFlagPayloadChecksum;
    header->payloadCrc = wire::crc32c(payload);
  }
  if (config_.losslessLink && payload.size() >= kAlignFromBytes) {
    content->padding =
        (reinterpret_cast<std::uintptr_t>(payload.data()) - kOuterHeaderBytes - wire::dataHeaderBytes(frame.type)) % 64;
  }
  content->wireBytes = wire::dataHeaderBytes(frame.type) + content->padding + frame.length;
}

void Session::writeFrame(const SentFrame& frame, const FrameContent& content, const wire::PacketHeader& header) {
  writer_.begin(header);
  if (wire::isChunk(frame.type)) {
    writer_.chunkHeader({sends_.id(frame.message), frame.number});
  } else if (frame.message != kNoSlot) {
    writer_.messageHeader(describeMessage(frame));
    writer_.padding(content.padding);
  } else if (frame.type != wire::FrameType::kCredit) {
    writer_.number(frame.number);
  }
}

// Before give(): the scoreboard decides whether the frame is a retransmission.
void Session::noteFrameSent(TimePoint now, std::uint64_t sequence, std::size_t wireBytes) {
  const SentFrame& frame = board_.frame(sequence);
  if (!board_.anyInFlight()) liveness_.timerSince = now;
  board_.onSent(now, sequence);
  if (frame.retransmitted) ++counters_.retransmits;
  path_.congestion->onSent(now, frame.wireBytes, board_.inFlightBytes());
  path_.pacer.onSent(now, wireBytes);
  liveness_.lastSentAt = now;
  given_.sequence = sequence;
  if (!acks_.hasGaps()) acks_.onAckSent();
}

bool Session::sendFrame(TimePoint now, std::uint64_t sequence, SessionDatagram* out) {
  SentFrame& frame = board_.frame(sequence);
  if (exceedsPath(frame)) return sendPiece(now, sequence, out);
  const bool covered = repair_.active && frame.state == FrameState::kUnsent && coverFrame(now, sequence);
  wire::PacketHeader header;
  beginHeader(now, frame.type, &header);
  header.sequence = truncateSequence(sequence);
  if (covered) header.flags |= wire::kFlagCovered;
  FrameContent content;
  if (frame.message != kNoSlot) fillContent(frame, &content, &header);
  countInFlight(&frame, content.wireBytes, covered);
  frame.pieces = FramePieces::kNone;
  requestAckWhereUseful(&frame);
  if (frame.ackRequested) header.flags |= wire::kFlagAckRequested;
  writeFrame(frame, content, header);
  noteFrameSent(now, sequence, content.wireBytes);
  give(out, Sent::kFrame, content.payload);
  // Elsewhere a send is complete before its last datagram has arrived.
  out->lasting = frame.length > 0 && !config_.losslessLink && !path_.isLong && sends_.isUsers(frame.message);
  if (covered) addToBlock(now, sequence, header.payloadCrc, *out);
  return true;
}

bool Session::mayTransmitFrame(TimePoint now) {
  // The last datagram may reach over the window's end: its size is not known here, and may be far below the largest.
  if (board_.anyInFlight() && board_.inFlightBytes() >= path_.congestion->windowBytes()) return false;
  if (path_.pacer.mayReleaseAt(now)) return true;
  path_.pacingBlocked = true;
  return false;
}

void Session::queueControls() {
  if (isRail()) return;
  if (!own_->discarding && !creditQueued_ && incoming_.limitsDue()) {
    creditQueued_ = true;
    incoming_.onLimitsTold();
    controls_.pushBack({wire::FrameType::kCredit, 0});
  }
  if (state_ == SessionState::kClosing && !ending_.closeQueued && sends_.allSent()) {
    ending_.closeQueued = true;
    controls_.pushBack({wire::FrameType::kClose, sends_.introduced()});
  }
}

bool Session::openControl(std::uint64_t* sequence) {
  if (controls_.empty() || board_.full()) return false;
  const ControlFrame control = controls_.popFront();
  *sequence = board_.open();
  SentFrame& frame = board_.frame(*sequence);
  frame.type = control.type;
  frame.number = control.number;
  if (control.type == wire::FrameType::kClose) {
    ending_.closeSequence = *sequence;
    frame.ackRequested = true;
  }
  return true;
}

bool Session::openPlanned(const ChunkSizes& sizes, std::uint64_t* sequence) {
  FramePlan plan;
  if (board_.full()) return false;
  if (!(isRail() ? sends_.nextPart(sizes, &plan) : sends_.next(sizes, &plan))) return false;
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

// After a silence: something new if there is anything, else, where a round trip is dear or the first probe was not
// answered, a frame under way: the last one, behind which the answer shows all gaps, or from the oldest on.
bool Session::nextLossProbe(std::uint64_t* sequence) {
  const bool unanswered = path_.rtt.backOffs() > 1;
  const bool bare = path_.rtt.minimum() <= kBareProbeMaxRtt;
  queueControls();
  if (openControl(sequence) || openPlanned(chunkSizes(), sequence)) {
    liveness_.pingDue = liveness_.pingDue || unanswered;
  } else {
    liveness_.pingDue = liveness_.pingDue || unanswered || bare;
    if (!(unanswered ? board_.oldestInFlight(sequence) : !bare && board_.highestInFlight(sequence))) return false;
  }
  board_.frame(*sequence).ackRequested = true;
  return true;
}

// The next frame with a sequence number; false: none, or none may go now.
bool Session::nextFrame(TimePoint now, std::uint64_t* sequence) {
  if (undone_) {
    *sequence = *undone_;
    undone_.reset();
    if (*sequence >= board_.base() && board_.frame(*sequence).state != FrameState::kAcknowledged) return true;
  }
  if (std::exchange(liveness_.lossProbeDue, false) && nextLossProbe(sequence)) return true;
  queueControls();
  const bool lost = board_.anyLost();
  const ChunkSizes sizes = chunkSizes();
  if (!lost && controls_.empty() && !(isRail() ? sends_.partReady(sizes) : sends_.ready(sizes))) {
    if (board_.inFlightBytes() < path_.congestion->windowBytes()) board_.markAppLimited();
    return false;
  }
  if (!mayTransmitFrame(now)) return false;
  if (lost) return board_.nextLost(sequence);
  return openControl(sequence) || openPlanned(sizes, sequence);
}

// The datagram given last was not refused.
void Session::settleLast() {
  if (std::exchange(given_.what, Sent::kNothing) != Sent::kFrame) return;
  if (!live() || given_.sequence < board_.base()) return;
  const SentFrame& frame = board_.frame(given_.sequence);
  if (wire::isData(frame.type) && frame.state == FrameState::kInFlight && !frame.retransmitted) {
    sends_.onHandedOver(frame.message, frame.length);
  }
}

bool Session::pollTransmit(TimePoint now, SessionDatagram* out) {
  if (leadIsOver()) return false;
  settleLast();
  path_.pacingBlocked = false;
  const bool any = nextDatagram(now, out);
  path_.pacer.setBacklogged(any || path_.pacingBlocked);
  return any;
}

bool Session::nextDatagram(TimePoint now, SessionDatagram* out) {
  if (ending_.resetDue) return sendReset(now, out);
  if (handshake_.due() && remoteId_ != 0) return sendHello(now, out);
  if (state_ == SessionState::kFailed || state_ == SessionState::kIdle || !handshake_.done()) return false;
  const bool rangesDue = acks_.ackDue(now) && (acks_.hasGaps() || repair_.recovered != repair_.recoveredTold);
  if (liveness_.pongDue || rangesDue) return sendAck(now, out);
  if (path_.probeReplyDue != 0) return sendProbeReply(now, out);
  std::uint64_t sequence;
  if (state_ != SessionState::kClosed && state_ != SessionState::kPeerClosed) {
    if (repairDue()) {
      if (path_.pacer.mayReleaseAt(now)) return sendRepair(now, out);
      path_.pacingBlocked = true;
    }
    if (nextFrame(now, &sequence)) return sendFrame(now, sequence, out);
    if (path_.mtu.candidate() != 0 && path_.mtu.due(now)) return sendProbe(now, out);
  }
  if (acks_.ackDue(now) || liveness_.pingDue) return sendAck(now, out);
  return false;
}

void Session::undoTransmit() {
  const Sent undone = given_.what;
  given_.what = Sent::kNothing;
  if (undone == Sent::kNothing) return;
  --counters_.packetsSent;
  counters_.wireBytesSent -= given_.bytes + sealBytes();
  switch (undone) {
    case Sent::kPiece:
      piecesOut_.undo();
      if (!piecesOut_.atLast()) {
        path_.pacer.undo(given_.bytes);
        break;
      }
      [[fallthrough]];
    case Sent::kFrame:
      if (!live() || given_.sequence < board_.base()) return;
      if (board_.frame(given_.sequence).retransmitted) --counters_.retransmits;
      board_.undo(given_.sequence);
      path_.pacer.undo(given_.bytes);
      undone_ = given_.sequence;
      break;
    case Sent::kAck:
      liveness_.pingDue = liveness_.pingDue || given_.pinged;
      liveness_.pongDue = true;
      break;
    case Sent::kHello:
      handshake_.makeDue();
      return;  // it acknowledges nothing
    case Sent::kProbe:
      path_.mtu.onNotSent();
      break;
    case Sent::kProbeReply:
      break;
    case Sent::kReset:
      ending_.resetDue = true;
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
