// What arrives.
#include "transport/base/sequence.h"
#include "transport/core/session_impl.h"

namespace gloo_bypass {

void Session::Impl::handleDatagram(TimePoint now, std::span<const std::byte> datagram) {
  settleLast();  // or this datagram's acknowledgement would hide that the port has taken it
  ParsedPacket packet;
  const ParseResult result = parsePacket(datagram, &packet);
  if (result == ParseResult::kForeign || result == ParseResult::kCorrupted) {
    ++(result == ParseResult::kForeign ? counters_.invalidReceived : counters_.corruptedReceived);
    return;
  }
  const PacketHeader& header = packet.header;
  if (header.receiverId != localId_) {
    ++counters_.invalidReceived;
    return;
  }
  ++counters_.packetsReceived;
  counters_.wireBytesReceived += datagram.size();
  if (result == ParseResult::kOtherVersion) {
    ++counters_.invalidReceived;
    if (header.type != FrameType::kHello || handshake_.done() || state_ != SessionState::kConnecting) return;
    fail({ErrorScope::kSession, ErrorCode::kConfiguration,
          "the wire format is version " + std::to_string(kWireVersion) + " here and " +
              std::to_string(header.version) + " on the peer; install the same version on both ranks"}, false);
    handshake_.makeDue();
    return;
  }
  if (header.type == FrameType::kHello) return handleHello(now, packet);
  // Before the greeting nothing can be understood; the peer repeats it.
  if (!handshake_.heard() || state_ == SessionState::kIdle) return;
  if (result == ParseResult::kMalformed) return violate("the peer sent a malformed datagram");
  if (state_ == SessionState::kFailed) return;
  if (state_ == SessionState::kClosed && !handshake_.done()) return;  // closed before it was connected
  if (header.type == FrameType::kReset) {
    if (state_ == SessionState::kPeerClosed) return;  // it had closed in good order
    std::uint32_t reason = 0;
    if (!decodeReason(packet.body, &reason)) return violate("the peer sent a malformed reset");
    return fail({ErrorScope::kSession, ErrorCode::kPeerVanished,
                 "the peer gave the connection up (reason " + std::to_string(reason) + ")"}, false);
  }
  lastReceivedAt_ = now;
  acks_.onTimestamp(now, header.timestamp);
  handleEcho(now, header);
  if (!handshake_.done()) establish(now);
  if (state_ == SessionState::kClosed) {  // time wait: answer what is repeated
    if (isSequenced(header.type) || (header.flags & kFlagAckRequested) != 0) acks_.requestAck();
    return;
  }
  if (!handleAcknowledgement(now, packet)) return;
  switch (header.type) {
    case FrameType::kAck:
      // The answer is a datagram of its own, with all ranges: that tells what has not arrived.
      pongDue_ = pongDue_ || (header.flags & kFlagAckRequested) != 0;
      return;
    case FrameType::kProbe:
      if (!decodeSize(packet.body, &probeReplyDue_)) return violate("the peer sent a malformed probe");
      if (probeReplyDue_ != datagram.size()) probeReplyDue_ = 0;
      return;
    case FrameType::kProbeReply: {
      std::uint16_t size = 0;
      if (!decodeSize(packet.body, &size)) return violate("the peer sent a malformed probe reply");
      const std::size_t before = probe_.confirmed();
      probe_.onReply(size);
      if (probe_.confirmed() != before) onLargerDatagrams();
      return;
    }
    case FrameType::kRepair:
      return handleRepair(now, packet);
    default:
      if ((header.flags & kFlagCovered) != 0) return handleCovered(now, packet);
      return handleFrame(now, packet);
  }
}

void Session::Impl::handleHello(TimePoint now, const ParsedPacket& packet) {
  Hello hello;
  if (!decodeHello(packet.body, &hello) || hello.maxDatagramBytes < kMinDatagramBytes) {
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
  const bool seen = (packet.header.flags & kFlagHelloSeen) != 0;
  if (state_ == SessionState::kFailed || state_ == SessionState::kClosed) {
    // A peer whose settings cannot talk to ours must learn it as well.
    if (!seen && error_.code == ErrorCode::kConfiguration) handshake_.makeDue();
    return;
  }
  lastReceivedAt_ = now;
  acks_.onTimestamp(now, packet.header.timestamp);
  if (!handshake_.heard()) {
    handshake_.onHello(hello);
    if (auto error = compareSettings(localHello(), hello)) {
      fail(*error, false);
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

void Session::Impl::handleEcho(TimePoint now, const PacketHeader& header) {
  if ((header.flags & kFlagEcho) == 0) return;
  if (haveLastEcho_ && header.timestampEcho == lastEcho_) return;  // teaches nothing new
  const auto elapsed = static_cast<std::int32_t>(ticks(now) - header.timestampEcho);
  const std::int64_t rttTicks = std::int64_t{elapsed} - header.echoDelay;
  if (elapsed < 0 || rttTicks < 0) return;
  haveLastEcho_ = true;
  lastEcho_ = header.timestampEcho;
  const Duration rtt(rttTicks * kTickNanoseconds + kTickNanoseconds / 2);
  rto_.addSample(now, rtt);
  if (rttHistogram_ != nullptr) rttHistogram_->add(rtt);
}

// The echo tells when the newest datagram that arrived was sent. True: it is news, and all that the peer has is told with it.
bool Session::Impl::noteArrivalEchoed(TimePoint now, const ParsedPacket& packet) {
  const PacketHeader& header = packet.header;
  if (config_.losslessLink || (header.flags & kFlagEcho) == 0) return false;
  const auto elapsed = static_cast<std::int32_t>(ticks(now) - header.timestampEcho);
  if (elapsed < 0) return false;
  if (rto_.backOffs() > 0 && static_cast<std::int32_t>(header.timestampEcho - askedAt_) >= 0) {
    rto_.resetBackOff();  // answered
    timerSince_ = now;
  }
  // Of a datagram's cumulative number alone it is not known whether there are gaps, and which.
  if (header.type != FrameType::kAck || packet.sackCount() == kMaxSackRanges) return false;
  const std::int64_t sentTick = now.time_since_epoch().count() / kTickNanoseconds - elapsed;
  return losses_.onArrivalOf(TimePoint(Duration(sentTick * kTickNanoseconds)));
}

// Acknowledges what of [begin, end) is not yet; false: never sent.
bool Session::Impl::acknowledgeRange(TimePoint now, std::uint64_t begin, std::uint64_t end,
                                     const PacketHeader& header) {
  if (end > board_.next() || begin > end) return false;
  begin = std::max(begin, board_.base());
  for (std::uint64_t n = begin < end ? board_.nextUnacknowledged(begin, end) : end; n < end;
       n = board_.nextUnacknowledged(n + 1, end)) {
    const SentFrame sent = board_.frame(n);
    if (!board_.acknowledge(now, n)) return false;
    // Of several transmissions the echo tells which one arrived.
    const bool latest = !sent.retransmitted || (header.flags & kFlagEcho) == 0 ||
                        static_cast<std::int32_t>(header.timestampEcho - ticks(sent.sentAt)) >= 0;
    if (latest && sent.state == FrameState::kInFlight) board_.noteAckedOrder(sent.order);
    if (!latest) ++counters_.spuriousRetransmits;
    if (sent.state == FrameState::kLost || (!latest && sent.declaredLost)) {
      losses_.onSpuriousLoss(now, rto_);
      lossEstimate_.onArrivedAfterAll(1);
    }
    if (sent.message != kNoSlot) {
      sends_.onFrameAcked(sent.message);
    } else if (sent.type == FrameType::kCredit) {
      creditQueued_ = false;
    }
    if (n + 1 >= end) break;
  }
  return true;
}

bool Session::Impl::handleAcknowledgement(TimePoint now, const ParsedPacket& packet) {
  const PacketHeader& header = packet.header;
  sends_.onLimits(header.byteLimit, expandSequence(header.messageLimit, sends_.introduced()));
  if (state_ == SessionState::kPeerClosed) return true;
  const std::uint64_t acknowledged = expandSequence(header.acknowledged, board_.base());
  const bool moved = acknowledged > board_.base();
  const bool overtook = noteArrivalEchoed(now, packet);
  if (!moved && !overtook && packet.sackBytes.empty()) return true;
  board_.beginSample();
  bool sane = acknowledgeRange(now, board_.base(), std::max(acknowledged, board_.base()), header);
  for (std::size_t i = 0; sane && i < packet.sackCount(); ++i) {
    const SackRange range = packet.sackRange(i);
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
  if (!noteRepaired(packet, &repairedBytes)) {
    violate("the peer found more frames again than were ever sent");
    return false;
  }
  board_.discountDelivered(repairedBytes);
  finishAcknowledgement(now, detectLosses(now) + repairedBytes);
  if (closeSequence_ && board_.base() > *closeSequence_) {
    dropEverything();
    state_ = SessionState::kClosed;
    endsAt_ = kNever;
    return false;
  }
  return true;
}

void Session::Impl::finishAcknowledgement(TimePoint now, std::size_t lostBytes) {
  AckSample sample;
  sample.now = now;
  sample.lostBytes = lostBytes;
  sample.minRtt = rto_.minimum();
  sample.smoothedRtt = rto_.smoothed();
  board_.finishSample(now, sample.minRtt, &sample);
  if (sample.ackedBytes == 0 && lostBytes == 0) return;
  sample.rtt = rto_.latest();
  if (sample.ackedBytes > 0) {
    rto_.resetBackOff();
    timerSince_ = now;
    lossProbeDue_ = false;
  }
  congestion_->onAck(sample);
  if (lostBytes > 0 && unanswered_ > kPersistentQuestions) congestion_->onTimeout(now);
  unanswered_ = 0;
  if (config_.losslessLink) return;
  choosePath();
  pacer_.setRate(congestion_->pacingRate(), probe_.confirmed());
  pacer_.setLateness(std::min<Duration>(sample.smoothedRtt, kMostLateness));
  if (longPath_) resizeBuffers();
  lossEstimate_.onSent(sentFrames());
  chooseRepair();
}

void Session::Impl::handleFrame(TimePoint now, const ParsedPacket& packet) {
  const std::uint64_t sequence = expandSequence(packet.header.sequence, acks_.next());
  switch (acks_.onFrame(now, sequence, (packet.header.flags & kFlagAckRequested) != 0)) {
    case AckTracker::Arrival::kDuplicate:
      ++counters_.duplicatesReceived;
      return;
    case AckTracker::Arrival::kOutsideWindow:
      ++counters_.invalidReceived;
      return;
    case AckTracker::Arrival::kNew:
      break;
  }
  // Nothing is repeated on such a link: waiting for it would be for ever.
  if (config_.losslessLink && acks_.hasGaps()) return violate("a datagram is missing on a link that loses none");
  if (packet.header.type == FrameType::kClose) {
    if (peerCloseSequence_) return violate("the peer closed twice");
    peerCloseSequence_ = sequence;
  } else {
    if (peerCloseSequence_ && sequence > *peerCloseSequence_) return violate("the peer sent more after its close");
    handleFrameBody(now, packet);
  }
  if (peerCloseSequence_ && acks_.next() > *peerCloseSequence_ && live() && state_ != SessionState::kPeerClosed) {
    enterPeerClosed(now);
  }
}

void Session::Impl::handleFrameBody(TimePoint now, const ParsedPacket& packet) {
  MessageHeader message;
  std::uint64_t number = 0;
  bool sane = true;
  switch (packet.header.type) {
    case FrameType::kData:
    case FrameType::kAnnounce: {
      const bool data = packet.header.type == FrameType::kData;
      if (!decodeMessageHeader(packet.body, &message)) return violate("the peer sent a malformed message header");
      if (data && checksum_ && (packet.header.flags & kFlagPayloadChecksum) == 0) {
        return violate("the peer sent payload without the agreed checksum");
      }
      if (discarding_) return;
      sane = data ? incoming_.onChunk(message, packet.payload) : incoming_.onAnnounce(message);
      if (longPath_ && data) incoming_.credit().autotune(now, rto_.smoothed());
      break;
    }
    case FrameType::kWithdraw:
      if (!decodeNumber(packet.body, &number)) return violate("the peer sent a malformed withdrawal");
      if (discarding_) return;
      sane = incoming_.onWithdraw(number);
      break;
    case FrameType::kGrant:
      if (!decodeNumber(packet.body, &number) || !sends_.onGrant(number)) {
        return violate("the peer granted a message that was never announced");
      }
      break;
    default:  // kCredit: the header said it all
      break;
  }
  if (!sane) fail(incoming_.error(), true);
}

}  // namespace gloo_bypass
