// How large a datagram the path carries (path_probe.h), and how larger frames are sent in pieces.
#include <algorithm>

#include "transport/base/sequence.h"
#include "transport/core/session.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass {

bool Session::sendProbe(TimePoint now, SessionDatagram* out) {
  static constexpr std::array<std::byte, wire::kMaxDatagramBytes> kPadding{};
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kProbe, &header);
  writer_.begin(header);
  const std::size_t size = path_.mtu.candidate();
  writer_.size(static_cast<std::uint16_t>(size));
  path_.mtu.onSent(now, std::max<Duration>(rto(), std::chrono::milliseconds(20)));
  constexpr std::size_t kProbeHeaderBytes = wire::kCommonHeaderBytes + 2;
  return give(out, Sent::kProbe, std::span(kPadding).first(size - kProbeHeaderBytes));
}

bool Session::sendProbeReply(TimePoint now, SessionDatagram* out) {
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kProbeReply, &header);
  writer_.begin(header);
  writer_.size(path_.probeReplyDue);
  path_.probeReplyDue = 0;
  return give(out, Sent::kProbeReply);
}

// A probe and its small companion may arrive before either is answered: the answer to the larger one says more.
void Session::handleProbe(const wire::ParsedPacket& packet, std::size_t datagramBytes) {
  std::uint16_t size = 0;
  if (!wire::decodeSize(packet.body, &size)) return violate("the peer sent a malformed probe");
  if (size == datagramBytes) path_.probeReplyDue = std::max(path_.probeReplyDue, size);
}

void Session::handleProbeReply(TimePoint now, const wire::ParsedPacket& packet) {
  std::uint16_t size = 0;
  if (!wire::decodeSize(packet.body, &size)) return violate("the peer sent a malformed probe reply");
  const std::size_t before = path_.mtu.confirmed();
  path_.mtu.onReply(now, size);
  if (path_.mtu.confirmed() != before) onOtherDatagramSize();
}

// The controller counts in datagrams, and begins again.
void Session::onOtherDatagramSize() {
  path_.congestion.reset();
  choosePath();
}

// What was sent can be repeated in smaller datagrams than before.
bool Session::canShrink(bool toNarrow) const {
  const std::uint8_t wanted = toNarrow ? wire::kCapabilityPieces | wire::kCapabilitySmall : wire::kCapabilityPieces;
  return (handshake_.remote()->capabilities & wanted) == wanted;
}

void Session::onShrunkPath() {
  if (!canShrink(isNarrow())) {
    return enterFailed(
        {ErrorScope::kSession, ErrorCode::kUnavailable,
         "the path carries only smaller datagrams than before, and the peer's version cannot receive in pieces "
         "what was sent: set GLOO_BYPASS_MTU to what the path carries on all ranks, or install the same version "
         "on them"},
        true);
  }
  stopCovering();  // repair frames are as long as the longest frame of their block
  onOtherDatagramSize();
}

void Session::cutIntoPieces(std::uint64_t sequence) {
  const SentFrame& frame = board_.frame(sequence);
  wire::PacketHeader header;
  header.type = frame.type;
  FrameContent content;
  if (frame.message != kNoSlot) fillContent(frame, &content, &header);
  writeFrame(frame, content, header);
  piecesOut_.start(
      sequence, isNarrow(),
      {frame.type, header.payloadCrc, writer_.finish().subspan(wire::commonBytes(frame.type)), content.payload});
}

// The next piece of a frame; the frame is in flight once its last piece has gone. They go one right after the other, as
// the bytes of the frame in one datagram did.
bool Session::sendPiece(TimePoint now, std::uint64_t sequence, SessionDatagram* out) {
  if (!piecesOut_.holds(sequence, isNarrow())) cutIntoPieces(sequence);
  const bool last = piecesOut_.atLast();
  const PieceSender::Piece piece = piecesOut_.next();
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kPiece, &header);
  if (last) header.flags |= wire::kFlagAckRequested;
  if (addsChecksum()) {
    header.flags |= wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(piece.bytes);
  }
  writer_.begin(header);
  writer_.pieceHeader({truncateSequence(sequence), piece.symbolBytes, piece.index, isNarrow()});
  const std::size_t wireBytes = wire::kCommonHeaderBytes + wire::kPieceHeaderBytes + piece.bytes.size();
  if (last) {
    SentFrame& frame = board_.frame(sequence);
    countInFlight(&frame, frame.datagramBytes(), false);
    frame.pieces = isNarrow() ? FramePieces::kSmall : FramePieces::kUsual;
    noteFrameSent(now, sequence, wireBytes);
  } else {
    path_.pacer.onSent(now, wireBytes);
    if (!acks_.hasGaps()) acks_.onAckSent();
    undone_ = sequence;
  }
  return give(out, Sent::kPiece, piece.bytes);
}

void Session::handlePiece(TimePoint now, const wire::ParsedPacket& packet) {
  wire::PieceHeader piece;
  if (!wire::decodePieceHeader(packet.body, &piece)) return violate("the peer sent a malformed piece of a frame");
  if (checksum_ && (packet.header.flags & wire::kFlagPayloadChecksum) == 0) {
    return violate("the peer sent a piece of a frame without the agreed checksum");
  }
  const std::uint64_t sequence = expandSequence(piece.sequence, acks_.next());
  if (acks_.hasArrived(sequence)) return acks_.requestAck();  // our acknowledgement was lost, or is on its way
  if (sequence >= acks_.next() + kMaxFrameWindow) {
    ++counters_.invalidReceived;
    return;
  }
  std::optional<std::span<const std::byte>> symbol;
  if (!piecesIn_.onPiece(sequence, piece, packet.payload, &symbol)) {
    return violate("the peer sent an impossible piece of a frame");
  }
  if (!symbol) return;
  FrameSymbol frame;
  if (!readSymbol(*symbol, &frame)) return violate("the peer's pieces of a frame give no frame");
  handleSymbol(now, sequence, frame);
}

}  // namespace gloo_bypass
