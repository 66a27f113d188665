// Repair frames (core/repair): when frames are covered by them, how many a block gets, and what the peer's recover.
#include <algorithm>
#include <cmath>

#include "transport/base/seconds.h"
#include "transport/base/sequence.h"
#include "transport/core/session.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass {
namespace {

// A block is over when nothing has joined it for this share of the round trip, within bounds: the end of a message must
// not wait for the next one. Beyond it the repair comes later by as much, which is what a frame lost at the end costs.
constexpr int kIdleShare = 64;
constexpr Duration kMinIdle = std::chrono::microseconds(50), kMaxIdle = std::chrono::milliseconds(5);
// At the path's rate frames are this many times of their own length apart before that counts as idle.
constexpr double kIdleDatagrams = 2;
constexpr std::size_t kMinBlockSources = 8;
// A round trip that is longer than the shortest by more than this share of it stood in a queue, as BBR has it.
constexpr int kQueueShare = 20;
// `on` without any loss yet: as if one of a thousand were lost.
constexpr double kLeastLossRate = 1e-3;

}  // namespace

bool Session::mayRepair() const { return !config_.losslessLink && config_.repair.mode != Repair::Mode::kOff; }

void Session::chooseRepair() {
  const bool peerUnderstands = (handshake_.remote()->capabilities & wire::kCapabilityRepair) != 0;
  const bool wanted = mayRepair() && peerUnderstands &&
                      (config_.repair.mode == Repair::Mode::kOn || (path_.fitsBbr && repair_.lossEstimate.lossy()));
  if (wanted == repair_.active) return;
  repair_.active = wanted;
  if (wanted) {
    if (!repair_.encoder) repair_.encoder = std::make_unique<RepairEncoder>();
    return;
  }
  stopCovering();
}

// The block under way gets no repair frames, or no more of them.
void Session::stopCovering() {
  if (!repair_.encoder) return;
  RepairEncoder& encoder = *repair_.encoder;
  if (encoder.state() == RepairEncoder::State::kGathering) encoder.close(0);
  if (encoder.state() != RepairEncoder::State::kIdle) encoder.stop();
  board_.endGuard(encoder.first(), encoder.sources());
}

std::size_t Session::repairsFor(std::size_t sources, std::size_t limit) const {
  limit = std::min(limit, kMaxBlockRepairs);
  if (config_.repair.percent > 0) return std::min((sources * config_.repair.percent + 99) / 100, limit);
  double rate = repair_.lossEstimate.rate(sentFrames());
  if (config_.repair.mode == Repair::Mode::kOn) rate = std::max(rate, kLeastLossRate);
  return repairsNeeded(sources, std::min(rate * repair_.margin.factor(), 0.5), limit);
}

void Session::startBlock(TimePoint now, std::uint64_t sequence) {
  const std::size_t datagram = path_.mtu.confirmed();
  const double rate = path_.congestion->pacingRate();
  std::size_t sources = std::min(kMaxBlockSources, RepairDecoder::kMaxBlockBytes / datagram);
  if (!std::isinf(rate)) {
    const double within =
        rate * secondsOf(path_.rtt.smoothed()) / LossDetector::kBlockShare / static_cast<double>(datagram);
    sources = std::min(sources, static_cast<std::size_t>(std::max(within, double{kMinBlockSources})));
  }
  const std::size_t repairs = repairsFor(sources, RepairBudget::mostRepairs(sources));
  repair_.encoder->start(now, sequence, sources, repairs, RepairEncoder::symbolBytes(datagram));
  repair_.coverFactor = 1 + static_cast<double>(repairs) / static_cast<double>(sources);
}

void Session::endBlock() {
  RepairEncoder& encoder = *repair_.encoder;
  const std::size_t planned = encoder.plannedRepairs();
  const std::size_t repairs = std::min(repairsFor(encoder.sources(), planned), repair_.budget.available());
  repair_.budget.spend(repairs);
  repair_.margin.onBlockSent();
  encoder.close(repairs);
  if (repairs == 0) board_.endGuard(encoder.first(), encoder.sources());
}

// Whether the frame, about to go out for the first time, is one of a block's sources; begins a block where there is
// none.
bool Session::coverFrame(TimePoint now, std::uint64_t sequence) {
  using State = RepairEncoder::State;
  RepairEncoder& encoder = *repair_.encoder;
  if (encoder.state() != State::kIdle && encoder.has(sequence)) return true;  // the port had refused it
  const SentFrame& frame = board_.frame(sequence);
  const std::size_t bodyBytes = frame.message != kNoSlot ? wire::messageBytes(frame.type) : sizeof frame.number;
  const std::size_t symbolBytes = kSymbolHeaderBytes + bodyBytes + frame.length;
  if (encoder.state() == State::kGathering &&
      (sequence != encoder.first() + encoder.sources() || symbolBytes > encoder.symbolBytes())) {
    endBlock();
  }
  if (encoder.state() == State::kSending) return false;  // a probe, which does not wait for the repair frames' turn
  if (symbolBytes > RepairEncoder::symbolBytes(path_.mtu.confirmed())) return false;  // cut before repair began
  if (encoder.state() == State::kIdle) startBlock(now, sequence);
  return true;
}

// The frame's bytes are those just written.
void Session::addToBlock(TimePoint now, std::uint64_t sequence, std::uint32_t payloadCrc,
                         const SessionDatagram& datagram) {
  RepairEncoder& encoder = *repair_.encoder;
  if (encoder.state() != RepairEncoder::State::kGathering || encoder.has(sequence)) return;
  const wire::FrameType type = board_.frame(sequence).type;
  encoder.add(now, {type, payloadCrc, datagram.header.subspan(wire::commonBytes(type)), datagram.payload});
  repair_.budget.onSource();
  if (encoder.full()) endBlock();
}

TimePoint Session::repairDeadline() const {
  if (!repair_.encoder || repair_.encoder->state() != RepairEncoder::State::kGathering) return kNever;
  Duration idle = std::clamp(path_.rtt.smoothed() / kIdleShare, kMinIdle, kMaxIdle);
  const double rate = path_.congestion->pacingRate();
  if (!std::isinf(rate)) {
    const double apart = std::min(kIdleDatagrams * static_cast<double>(path_.mtu.confirmed()) / rate, 1.0);
    idle += Duration(static_cast<Duration::rep>(apart * 1e9));
  }
  const Duration longest = std::max(path_.rtt.smoothed() / LossDetector::kBlockShare, kMinIdle);
  return std::min(repair_.encoder->lastAddedAt() + idle, repair_.encoder->startedAt() + longest);
}

bool Session::repairDue() const {
  return repair_.encoder && !undone_ && repair_.encoder->state() == RepairEncoder::State::kSending;
}

bool Session::sendRepair(TimePoint now, SessionDatagram* out) {
  RepairEncoder& encoder = *repair_.encoder;
  std::span<const std::byte> payload;
  const wire::RepairHeader repair = encoder.next(&payload);
  wire::PacketHeader header;
  beginHeader(now, wire::FrameType::kRepair, &header);
  if (addsChecksum()) {
    header.flags |= wire::kFlagPayloadChecksum;
    header.payloadCrc = wire::crc32c(payload);
  }
  writer_.begin(header);
  writer_.repairHeader(repair);
  encoder.onSent();
  if (encoder.state() == RepairEncoder::State::kIdle) board_.endGuard(encoder.first(), encoder.sources());
  ++counters_.repairFramesSent;
  if (!acks_.hasGaps()) acks_.onAckSent();
  give(out, Sent::kRepair, payload);
  // In flight they are counted with the frames that they cover: nobody acknowledges them.
  path_.pacer.onSent(now, given_.bytes);
  return true;
}

void Session::undoRepair() {
  --counters_.repairFramesSent;
  path_.pacer.undo(given_.bytes);
  if (repair_.active) repair_.encoder->undo();
}

std::size_t Session::detectLosses(TimePoint now) {
  const std::uint64_t lostBefore = losses_.lostFrames();
  const std::size_t bytes = losses_.detect(now, path_.rtt, &board_);
  if (bytes == 0) return 0;
  path_.mtu.suspect(now, losses_.takeLostAgain());
  const bool unrepaired = losses_.unrepairedFrames() != counters_.framesUnrepaired;
  counters_.framesUnrepaired = losses_.unrepairedFrames();
  // A full queue drops rows of frames that no repair makes up for; more frames would only be dropped too.
  if (path_.rtt.latest() > path_.rtt.minimum() + path_.rtt.minimum() / kQueueShare) return bytes;
  repair_.lossEstimate.onLost(losses_.lostFrames() - lostBefore);
  if (unrepaired && now - repair_.marginRaisedAt >= path_.rtt.smoothed()) {
    repair_.marginRaisedAt = now;
    repair_.margin.onBlockFailed();
  }
  return bytes;
}

// Counts what the peer recovered as lost on the way. False: the peer reports more than was ever sent.
bool Session::noteRepaired(TimePoint now, const wire::ParsedPacket& packet, std::size_t* lostBytes) {
  *lostBytes = 0;
  if (packet.header.type != wire::FrameType::kAck || packet.body.empty()) return true;
  std::uint32_t reported = 0;
  if (!wire::decodeRecovered(packet.body, &reported)) return false;
  const Duration ago = now - repair_.peerReportArrivedAt;
  if (repair_.peerRecovered != 0 && wire::wasOvertaken(packet.header.timestamp, repair_.peerReportedAt, ago))
    return true;
  repair_.peerReportArrivedAt = now;
  repair_.peerReportedAt = packet.header.timestamp;
  const std::uint64_t total = expandSequence(reported, repair_.peerRecovered);
  if (total > sentFrames()) return false;
  if (total > repair_.peerRecovered) {
    repair_.lossEstimate.onLost(total - repair_.peerRecovered);
    const auto frames = static_cast<double>(total - repair_.peerRecovered);
    *lostBytes = static_cast<std::size_t>(frames * repair_.coverFactor * static_cast<double>(path_.mtu.confirmed()));
  } else {
    repair_.lossEstimate.onArrivedAfterAll(repair_.peerRecovered - total);
  }
  repair_.peerRecovered = total;
  return true;
}

void Session::handleCovered(TimePoint now, const wire::ParsedPacket& packet) {
  const std::uint64_t sequence = expandSequence(packet.header.sequence, acks_.next());
  const bool duplicate = acks_.hasArrived(sequence);
  handleFrame(now, packet);
  if (!mayRepair() || !live() || state_ == SessionState::kPeerClosed) return;
  if (!repair_.decoder) repair_.decoder = std::make_unique<RepairDecoder>(acks_);
  if (duplicate) {
    if (repair_.decoder->wasRecovered(sequence)) --repair_.recovered;
    return;
  }
  if (!acks_.hasArrived(sequence)) return;  // outside the window
  // Types without a meaningful body may have one of any length.
  if (packet.body.size() > FrameSymbol::kMaxBodyBytes)
    return violate("the peer sent a frame that no repair frame can cover");
  const FrameSymbol symbol{packet.header.type, packet.header.payloadCrc, packet.body, packet.payload};
  if (!repair_.decoder->onSource(sequence, symbol)) {
    return violate("the peer sent a frame that contradicts its repair frames");
  }
  takeRecovered(now);
}

void Session::handleRepair(TimePoint now, const wire::ParsedPacket& packet) {
  wire::RepairHeader repair;
  if (!wire::decodeRepairHeader(packet.body, &repair)) return violate("the peer sent a malformed repair frame");
  if (checksum_ && (packet.header.flags & wire::kFlagPayloadChecksum) == 0) {
    return violate("the peer sent a repair frame without the agreed checksum");
  }
  if (!mayRepair()) {  // our Hello said so
    ++counters_.invalidReceived;
    return;
  }
  ++counters_.repairFramesReceived;
  if (state_ == SessionState::kPeerClosed) return;
  if (!repair_.decoder) repair_.decoder = std::make_unique<RepairDecoder>(acks_);
  const std::uint64_t first = expandSequence(repair.firstSequence, acks_.next());
  if (!repair_.decoder->onRepair(first, repair, packet.payload)) {
    return violate("the peer sent an impossible repair frame");
  }
  takeRecovered(now);
}

// Handles a frame that was put together here as if it had arrived. False: it was damaged.
bool Session::handleSymbol(TimePoint now, std::uint64_t sequence, const FrameSymbol& frame) {
  const bool checked = wire::isData(frame.type) && (checksum_ || frame.payloadCrc != 0);
  if (checked && wire::crc32c(frame.payload) != frame.payloadCrc) {
    ++counters_.corruptedReceived;  // as if it had not come
    return false;
  }
  wire::ParsedPacket packet;
  packet.header.type = frame.type;
  packet.header.sequence = truncateSequence(sequence);
  packet.header.flags = wire::kFlagAckRequested;
  if (checked) packet.header.flags |= wire::kFlagPayloadChecksum;
  packet.body = frame.body;
  packet.payload = frame.payload;
  handleFrame(now, packet);
  return true;
}

// Each frame may end the session.
void Session::takeRecovered(TimePoint now) {
  RepairDecoder::Recovered recovered;
  while (live() && state_ != SessionState::kPeerClosed) {
    const RepairDecoder::Next next = repair_.decoder->nextRecovered(&recovered);
    if (next == RepairDecoder::Next::kNone) return;
    if (next == RepairDecoder::Next::kNonsense) return violate("the peer's repair frames give no frame");
    if (!handleSymbol(now, recovered.sequence, recovered.frame)) continue;
    ++repair_.recovered;
    ++counters_.framesRecovered;
  }
}

void Session::dropRepair() {
  repair_.active = false;
  if (repair_.encoder) repair_.encoder->stop();
  if (repair_.decoder) repair_.decoder->clear();
}

}  // namespace gloo_bypass
