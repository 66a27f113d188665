// Handles the datagrams that arrive.
#include "transport/base/sequence.h"
#include "transport/core/session.h"

namespace gloo_bypass {
namespace {

// RFC 9002, 7.6.1: what was sent over three probe timeouts is lost. With back-off these are so many lost probes and
// one answered.
constexpr unsigned kPersistentProbes = 2;
// So many loss probes without an acknowledgement, while smaller datagrams are answered: two rounds of two.
constexpr unsigned kSuspectProbes = 4;
// A thread that wants to run waits hardly longer for its core.
constexpr Duration kMostLateness = std::chrono::milliseconds(30);

// Why the peer gave the connection up, as its reset has it. No default, so that the compiler misses what has no words.
std::string describeReason(std::uint32_t reason) {
  switch (static_cast<ErrorCode>(reason)) {
    case ErrorCode::kMessageTooLong:
      return "a message of this rank does not fit the receive that it met there; use the same sizes on both ranks";
    case ErrorCode::kPeerViolatedProtocol:
      return "this rank broke the protocol, as it found";
    case ErrorCode::kCancelled:
      return "it was aborted there, or a message was cancelled half-way";
    case ErrorCode::kPeerVanished:
      return "it heard nothing from this rank for too long, or that nobody listens here";
    case ErrorCode::kUnavailable:
      return "it cannot use a path, interface or device any more; its own error names it";
    case ErrorCode::kConfiguration:
    case ErrorCode::kInvalidArgument:
      return "a setting there does not serve this connection; its own error names it";
    case ErrorCode::kExhausted:
      return "it reached a limit; its own error names it";
    case ErrorCode::kTimedOut:
      return "it gave up waiting";
    case ErrorCode::kPeerClosed:
      return "it took this rank for gone";
    case ErrorCode::kInternal:
      return "a fault there; its own error describes it";
  }
  return "reason " + std::to_string(reason);
}

}  // namespace

// Counts the datagram; false: it is not one for this session.
bool Session::accept(std::span<const std::byte> datagram, wire::ParseResult result, const wire::PacketHeader& header) {
  if (result == wire::ParseResult::kCorrupted) {
    ++counters_.corruptedReceived;
    return false;
  }
  if (result == wire::ParseResult::kForeign || header.receiverId != localId_) {
    ++counters_.invalidReceived;
    return false;
  }
  ++counters_.packetsReceived;
  counters_.wireBytesReceived += datagram.size() + sealBytes();
  return true;
}

void Session::rejectVersion(const wire::PacketHeader& header) {
  ++counters_.invalidReceived;
  if (header.type != wire::FrameType::kHello || handshake_.done() || state_ != SessionState::kConnecting) return;
  enterFailed({ErrorScope::kSession, ErrorCode::kConfiguration,
               "the wire format is version " + std::to_string(wire::kWireVersion) + " here and " +
                   std::to_string(header.version) + " on the peer; install the same version on both ranks"},
              false);
  handshake_.makeDue();
}

void Session::handleReset(const wire::ParsedPacket& packet) {
  if (state_ == SessionState::kPeerClosed) return;  // it had closed in good order
  std::uint32_t reason = 0;
  if (!wire::decodeReason(packet.body, &reason)) return violate("the peer sent a malformed reset");
  if (reason == static_cast<std::uint32_t>(ErrorCode::kTimedOut)) {
    return enterFailed({ErrorScope::kSession, ErrorCode::kTimedOut, "the peer gave up waiting for this connection"},
                       false);
  }
  enterFailed(
      {ErrorScope::kSession, ErrorCode::kPeerVanished, "the peer gave the connection up: " + describeReason(reason)},
      false);
}

void Session::handleDatagram(TimePoint now, std::span<const std::byte> datagram) {
  if (leadIsOver()) return;
  settleLast();  // or this datagram's acknowledgement would hide that the port has taken it
  wire::ParsedPacket packet;
  const wire::ParseResult result = wire::parsePacket(datagram, &packet, headerChecksum());
  const wire::PacketHeader& header = packet.header;
  if (!accept(datagram, result, header)) return;
  if (result == wire::ParseResult::kOtherVersion) return rejectVersion(header);
  if (header.type == wire::FrameType::kHello) return handleHello(now, packet);
  // Before the peer's Hello nothing can be understood; the peer retransmits it.
  if (!handshake_.heard() || state_ == SessionState::kIdle) return;
  if (result == wire::ParseResult::kMalformed) return violate("the peer sent a malformed datagram");
  if (ending_.tellsPeer) return repeatReset(now, header.type);
  if (state_ == SessionState::kFailed) return;
  if (state_ == SessionState::kClosed && !handshake_.done()) return;  // closed before it was connected
  if (header.type == wire::FrameType::kReset) return handleReset(packet);
  liveness_.lastReceivedAt = now;
  acks_.onTimestamp(now, header.timestamp);
  handleEcho(now, header);
  if (!handshake_.done()) establish(now);
  if (state_ == SessionState::kClosed) {  // time wait: answer what is retransmitted
    if (wire::isSequenced(header.type) || (header.flags & wire::kFlagAckRequested) != 0) acks_.requestAck();
    return;
  }
  if (handleAcknowledgement(now, packet)) handleContent(now, packet, datagram.size());
}

// Handles the rest of a datagram, after its acknowledgement.
void Session::handleContent(TimePoint now, const wire::ParsedPacket& packet, std::size_t datagramBytes) {
  const wire::PacketHeader& header = packet.header;
  switch (header.type) {
    case wire::FrameType::kAck:
      // The answer is a datagram of its own, with all ranges: that tells what has not arrived.
      liveness_.pongDue = liveness_.pongDue || (header.flags & wire::kFlagAckRequested) != 0;
      return;
    case wire::FrameType::kProbe:
      return handleProbe(packet, datagramBytes);
    case wire::FrameType::kProbeReply:
      return handleProbeReply(now, packet);
    case wire::FrameType::kRepair:
      return handleRepair(now, packet);
    case wire::FrameType::kPiece:
      return handlePiece(now, packet);
    default:
      if ((header.flags & wire::kFlagCovered) != 0) return handleCovered(now, packet);
      return handleFrame(now, packet);
  }
}

void Session::handleHello(TimePoint now, const wire::ParsedPacket& packet) {
  wire::Hello hello;
  if (!wire::decodeHello(packet.body, &hello) || hello.maxDatagramBytes < wire::kMinDatagramBytes) {
    ++counters_.invalidReceived;
    return;
  }
  if (state_ == SessionState::kIdle) {
    handshake_.onHello(hello);
    acks_.onTimestamp(now, packet.header.timestamp);
    return;
  }
  if (hello.senderId != remoteId_) {
    ++counters_.invalidReceived;
    return;
  }
  const bool seen = (packet.header.flags & wire::kFlagHelloSeen) != 0;
  if (state_ == SessionState::kFailed || state_ == SessionState::kClosed) {
    // The peer must learn, too, that its settings do not go with ours. A lead that failed with its rail may not have
    // heard the peer before; if both then said so, each would answer the other for ever.
    if (seen || error_.code != ErrorCode::kConfiguration) return;
    if (!handshake_.heard()) handshake_.onHello(hello);
    return handshake_.makeDue();
  }
  liveness_.lastReceivedAt = now;
  acks_.onTimestamp(now, packet.header.timestamp);
  if (!handshake_.heard()) {
    handshake_.onHello(hello);
    if (auto error = compareSettings(localHello(), hello)) {
      enterFailed(*error, false);
      handshake_.makeDue();
      return;
    }
    acks_.start((1ull << 32) + hello.initialSequence);
  }
  if (!seen) return handshake_.makeDue();
  handleEcho(now, packet.header);
  if (!handshake_.done()) establish(now);
  sends_.onLimits(packet.header.byteLimit, packet.header.messageLimit);
  acks_.requestAck();  // tells the peer that the handshake is over
}

void Session::handleEcho(TimePoint now, const wire::PacketHeader& header) {
  if ((header.flags & wire::kFlagEcho) == 0) return;
  if (path_.lastEcho == header.timestampEcho) return;  // teaches nothing new
  const auto elapsed = static_cast<std::int32_t>(ticks(now) - header.timestampEcho);
  const std::int64_t rttTicks = std::int64_t{elapsed} - header.echoDelay;
  if (elapsed < 0 || rttTicks < 0) return;
  path_.lastEcho = header.timestampEcho;
  const Duration rtt(rttTicks * wire::kTickNanoseconds + wire::kTickNanoseconds / 2);
  path_.rtt.addSample(now, rtt);
  if (!config_.losslessLink) path_.latestReturnQueue = path_.returnQueue.of(now, ticks(now), header.timestamp);
  if (path_.rttHistogram != nullptr) path_.rttHistogram->add(rtt);
}

// A loss probe and the question that goes with it leave in the same instant, so an answer does not show that the probe
// was overtaken. If questions are answered time and again, and the frame is not acknowledged, it may be too long.
void Session::suspectLossProbe(TimePoint now) {
  std::uint64_t probed = 0;
  if (liveness_.unanswered < kSuspectProbes || !board_.highestInFlight(&probed)) return;
  path_.mtu.suspect(now, board_.frame(probed).sentDatagramBytes());
}

// The echo says when the newest datagram that arrived was sent. True: that is new, and the acknowledgement reports
// everything that the peer has.
bool Session::noteArrivalEchoed(TimePoint now, const wire::ParsedPacket& packet) {
  const wire::PacketHeader& header = packet.header;
  if (config_.losslessLink || (header.flags & wire::kFlagEcho) == 0) return false;
  const auto elapsed = static_cast<std::int32_t>(ticks(now) - header.timestampEcho);
  if (elapsed < 0) return false;
  if (path_.rtt.backOffs() > 0 && static_cast<std::int32_t>(header.timestampEcho - liveness_.probeDueAt) >= 0) {
    path_.rtt.resetBackOff();  // answered
    liveness_.timerSince = now;
    suspectLossProbe(now);
  }
  // A cumulative number alone does not say whether there are gaps, and which.
  if (header.type != wire::FrameType::kAck || packet.sackCount() >= wire::kSentSackRanges) return false;
  const std::int64_t sentTick = now.time_since_epoch().count() / wire::kTickNanoseconds - elapsed;
  return losses_.onArrivalOf(TimePoint(Duration(sentTick * wire::kTickNanoseconds)));
}

// Acknowledges those of [begin, end) that are not acknowledged yet. False: the range was never sent.
bool Session::acknowledgeRange(TimePoint now, std::uint64_t begin, std::uint64_t end,
                               const wire::PacketHeader& header) {
  if (end > board_.next() || begin > end) return false;
  begin = std::max(begin, board_.base());
  for (std::uint64_t n = begin < end ? board_.nextUnacknowledged(begin, end) : end; n < end;
       n = board_.nextUnacknowledged(n + 1, end)) {
    const SentFrame sent = board_.frame(n);
    if (!board_.acknowledge(now, n)) return false;
    // The echo says which of several transmissions arrived.
    const bool latest = !sent.retransmitted || (header.flags & wire::kFlagEcho) == 0 ||
                        static_cast<std::int32_t>(header.timestampEcho - ticks(sent.sentAt)) >= 0;
    if (latest && sent.state == FrameState::kInFlight) board_.noteAckedOrder(sent.order);
    if (latest && path_.mtu.verifying()) path_.mtu.onArrival(now, sent.sentAt, sent.sentDatagramBytes());
    if (!latest) ++counters_.spuriousRetransmits;
    if (sent.state == FrameState::kLost || (!latest && sent.declaredLost)) {
      losses_.onSpuriousLoss(now, path_.rtt);
      repair_.lossEstimate.onArrivedAfterAll(1);
    }
    if (sent.message != kNoSlot) {
      isRail() ? sends_.onPartAcked(sent.message) : sends_.onFrameAcked(sent.message);
    } else if (sent.type == wire::FrameType::kCredit) {
      creditQueued_ = false;
    }
    if (n + 1 >= end) break;
  }
  return true;
}

bool Session::handleAcknowledgement(TimePoint now, const wire::ParsedPacket& packet) {
  const wire::PacketHeader& header = packet.header;
  if (!wire::isChunk(header.type)) {
    sends_.onLimits(header.byteLimit, expandSequence(header.messageLimit, sends_.introduced()));
  }
  if (state_ == SessionState::kPeerClosed) return true;
  const std::uint64_t acknowledged = expandSequence(header.acknowledged, board_.base());
  const bool moved = acknowledged > board_.base();
  const bool overtook = noteArrivalEchoed(now, packet);
  if (!moved && !overtook && packet.sackBytes.empty()) return true;
  if (config_.losslessLink && packet.sackCount() > 0) {
    // Nothing may be sent again there: the payload may be gone from the user's buffer.
    violate("the peer reports a gap on a link that loses none");
    return false;
  }
  board_.beginSample();
  bool sane = acknowledgeRange(now, board_.base(), std::max(acknowledged, board_.base()), header);
  for (std::size_t i = 0; sane && i < packet.sackCount(); ++i) {
    const wire::SackRange range = packet.sackRange(i);
    const std::uint64_t begin = expandSequence(range.begin, board_.base());
    const std::uint64_t end = expandSequence(range.end, board_.base());
    if (end <= board_.base()) continue;  // an old datagram
    sane = acknowledgeRange(now, begin, end, header);
  }
  if (!sane) {
    violate("the peer acknowledged what was never sent");
    return false;
  }
  board_.slide();
  std::size_t repairedBytes = 0;
  if (!noteRepaired(now, packet, &repairedBytes)) {
    violate("the peer recovered more frames than were ever sent");
    return false;
  }
  board_.discountDelivered(repairedBytes);
  finishAcknowledgement(now, detectLosses(now) + repairedBytes);
  if (ending_.closeSequence && board_.base() > *ending_.closeSequence) {
    dropEverything();
    state_ = SessionState::kClosed;
    ending_.deadline = kNever;
    return false;
  }
  return true;
}

void Session::finishAcknowledgement(TimePoint now, std::size_t lostBytes) {
  AckSample sample;
  sample.now = now;
  sample.lostBytes = lostBytes;
  sample.minRtt = path_.rtt.minimum();
  sample.smoothedRtt = path_.rtt.smoothed();
  board_.finishSample(now, sample.minRtt, &sample);
  if (sample.ackedBytes == 0 && lostBytes == 0) return;
  sample.rtt = path_.rtt.latest();
  sample.returnQueue = path_.latestReturnQueue;
  if (sample.ackedBytes > 0) {
    path_.rtt.resetBackOff();
    liveness_.timerSince = now;
    liveness_.lossProbeDue = false;
  }
  path_.congestion->onAck(sample);
  if (lostBytes > 0 && liveness_.unanswered > kPersistentProbes) path_.congestion->onTimeout(now);
  liveness_.unanswered = 0;
  if (config_.losslessLink) return;
  choosePath();
  path_.pacer.setRate(path_.congestion->pacingRate(), path_.mtu.confirmed());
  path_.pacer.setLateness(std::min<Duration>(sample.smoothedRtt, kMostLateness));
  if (path_.isLong) resizeBuffers();
  repair_.lossEstimate.onSent(sentFrames());
  chooseRepair();
}

void Session::handleFrame(TimePoint now, const wire::ParsedPacket& packet) {
  if (isRail() && !wire::isData(packet.header.type)) {
    return violate("the peer sent something else than parts of messages over a rail");
  }
  const std::uint64_t sequence = expandSequence(packet.header.sequence, acks_.next());
  switch (acks_.onFrame(now, sequence, (packet.header.flags & wire::kFlagAckRequested) != 0)) {
    case AckTracker::Arrival::kDuplicate:
      ++counters_.duplicatesReceived;
      return;
    case AckTracker::Arrival::kOutsideWindow:
      ++counters_.invalidReceived;
      return;
    case AckTracker::Arrival::kNew:
      break;
  }
  // Nothing is retransmitted on such a link: the wait would never end.
  if (config_.losslessLink && acks_.hasGaps()) return violate("a datagram is missing on a link that loses none");
  if (packet.header.type == wire::FrameType::kClose) {
    if (ending_.peerCloseSequence) return violate("the peer closed twice");
    ending_.peerCloseSequence = sequence;
  } else {
    if (ending_.peerCloseSequence && sequence > *ending_.peerCloseSequence) {
      return violate("the peer sent more after its close");
    }
    handleFrameBody(now, packet);
  }
  if (ending_.peerCloseSequence && acks_.next() > *ending_.peerCloseSequence && live() &&
      state_ != SessionState::kPeerClosed) {
    enterPeerClosed(now);
  }
}

// Payload of a message, or its announcement.
void Session::handleMessageFrame(TimePoint now, const wire::ParsedPacket& packet) {
  const wire::FrameType type = packet.header.type;
  const bool compact = wire::isChunk(type), data = wire::isData(type);
  wire::MessageHeader message;
  wire::ChunkHeader chunk;
  if (compact && !takesChunks()) return violate("the peer sent a short header, which memory links do not have");
  if (!(compact ? wire::decodeChunkHeader(packet.body, &chunk) : wire::decodeMessageHeader(packet.body, &message))) {
    return violate("the peer sent a malformed message header");
  }
  if (data && checksum_ && (packet.header.flags & wire::kFlagPayloadChecksum) == 0) {
    return violate("the peer sent payload without the agreed checksum");
  }
  if (shared_->discarding) return;
  bool sane;
  if (compact) {
    sane = incoming_.onChunk(now, chunk, type == wire::FrameType::kGrantedChunk, packet.payload);
  } else {
    sane = data ? incoming_.onData(now, message, packet.payload) : incoming_.onAnnounce(now, message);
  }
  if (path_.isLong && data) incoming_.credit().autotune(now, path_.rtt.smoothed());
  if (!sane) enterFailed(incoming_.error(), true);
}

void Session::handleFrameBody(TimePoint now, const wire::ParsedPacket& packet) {
  std::uint64_t number = 0;
  bool sane = true;
  switch (packet.header.type) {
    case wire::FrameType::kData:
    case wire::FrameType::kAnnounce:
    case wire::FrameType::kChunk:
    case wire::FrameType::kGrantedChunk:
      return handleMessageFrame(now, packet);
    case wire::FrameType::kWithdraw:
      if (!wire::decodeNumber(packet.body, &number)) return violate("the peer sent a malformed withdrawal");
      if (shared_->discarding) return;
      sane = incoming_.onWithdraw(now, number);
      break;
    case wire::FrameType::kGrant:
      if (!wire::decodeNumber(packet.body, &number) || !sends_.onGrant(number)) {
        return violate("the peer granted a message that was never announced");
      }
      break;
    default:  // kCredit: the limits are in the header
      break;
  }
  if (!sane) enterFailed(incoming_.error(), true);
}

}  // namespace gloo_bypass
