// Repair frames (core/repair): when frames are covered by them, how many a block gets, and what the peer's give back.
#include <algorithm>
#include <cmath>

#include "transport/base/sequence.h"
#include "transport/core/session_impl.h"
#include "transport/wire/crc32c.h"

namespace gloo_bypass {
namespace {

// A block is over when nothing has joined it for this share of the round trip, within bounds: the end of a message must not wait for the
// next one. Beyond it the repair comes later by as much, which is what a frame lost at the end costs.
constexpr int kIdleShare = 64;
constexpr Duration kMinIdle = std::chrono::microseconds(50), kMaxIdle = std::chrono::milliseconds(5);
// At the path's rate frames are this many times of their own length apart before that counts as idle.
constexpr double kIdleDatagrams = 2;
constexpr std::size_t kMinBlockSources = 8;
// A round trip that is longer than the shortest by more than this share of it stood in a queue, as BBR has it.
constexpr int kQueueShare = 20;
// `on` without any loss yet: as if one of a thousand were lost.
constexpr double kLeastLossRate = 1e-3;

double secondsOf(Duration duration) { return static_cast<double>(duration.count()) * 1e-9; }

}  // namespace

bool Session::Impl::mayRepair() const { return !config_.losslessLink && config_.repair.mode != Repair::Mode::kOff; }

void Session::Impl::chooseRepair() {
  const bool peerUnderstands = (handshake_.remote()->capabilities & kCapabilityRepair) != 0;
  const bool wanted = mayRepair() && peerUnderstands &&
                      (config_.repair.mode == Repair::Mode::kOn || (bbrPath_ && lossEstimate_.lossy()));
  if (wanted == repairing_) return;
  repairing_ = wanted;
  if (wanted) {
    if (!encoder_) encoder_ = std::make_unique<RepairEncoder>();
    return;
  }
  if (encoder_->state() == RepairEncoder::State::kGathering) encoder_->close(0);
  if (encoder_->state() != RepairEncoder::State::kIdle) encoder_->stop();
  board_.endGuard(encoder_->first(), encoder_->sources());
}

std::size_t Session::Impl::repairsFor(std::size_t sources, std::size_t limit) const {
  limit = std::min(limit, kMaxBlockRepairs);
  if (config_.repair.percent > 0) return std::min((sources * config_.repair.percent + 99) / 100, limit);
  double rate = lossEstimate_.rate(sentFrames());
  if (config_.repair.mode == Repair::Mode::kOn) rate = std::max(rate, kLeastLossRate);
  return repairsNeeded(sources, std::min(rate * lossMargin_.factor(), 0.5), limit);
}

void Session::Impl::startBlock(TimePoint now, std::uint64_t sequence) {
  const std::size_t datagram = probe_.confirmed();
  const double rate = congestion_->pacingRate();
  std::size_t sources = std::min(kMaxBlockSources, RepairDecoder::kMaxBlockBytes / datagram);
  if (!std::isinf(rate)) {
    const double within = rate * secondsOf(rto_.smoothed()) / LossDetector::kBlockShare / static_cast<double>(datagram);
    sources = std::min(sources, static_cast<std::size_t>(std::max(within, double{kMinBlockSources})));
  }
  const std::size_t repairs = repairsFor(sources, RepairBudget::mostRepairs(sources));
  encoder_->start(now, sequence, sources, repairs, RepairEncoder::symbolBytes(datagram));
  coverFactor_ = 1 + static_cast<double>(repairs) / static_cast<double>(sources);
}

void Session::Impl::endBlock() {
  const std::size_t planned = encoder_->plannedRepairs();
  const std::size_t repairs = std::min(repairsFor(encoder_->sources(), planned), repairBudget_.available());
  repairBudget_.spend(repairs);
  lossMargin_.onBlockSent();
  encoder_->close(repairs);
  if (repairs == 0) board_.endGuard(encoder_->first(), encoder_->sources());
}

// Whether the frame, about to go out for the first time, is one of a block's sources; begins a block where there is none.
bool Session::Impl::coverFrame(TimePoint now, std::uint64_t sequence) {
  using State = RepairEncoder::State;
  if (encoder_->state() != State::kIdle && encoder_->has(sequence)) return true;  // the port had refused it
  const SentFrame& frame = board_.frame(sequence);
  const std::size_t bodyBytes = frame.message != kNoSlot ? kMessageHeaderBytes : sizeof frame.number;
  const std::size_t symbolBytes = kSymbolHeaderBytes + bodyBytes + frame.length;
  if (encoder_->state() == State::kGathering &&
      (sequence != encoder_->first() + encoder_->sources() || symbolBytes > encoder_->symbolBytes())) {
    endBlock();
  }
  if (encoder_->state() == State::kSending) return false;  // a probe, which does not wait for the repair frames' turn
  if (symbolBytes > RepairEncoder::symbolBytes(probe_.confirmed())) return false;  // cut before repair began
  if (encoder_->state() == State::kIdle) startBlock(now, sequence);
  return true;
}

// The frame's bytes are those just written.
void Session::Impl::addToBlock(TimePoint now, std::uint64_t sequence, std::uint32_t payloadCrc,
                               const SessionDatagram& datagram) {
  if (encoder_->state() != RepairEncoder::State::kGathering || encoder_->has(sequence)) return;
  encoder_->add(
      now, {board_.frame(sequence).type, payloadCrc, datagram.header.subspan(kCommonHeaderBytes), datagram.payload});
  repairBudget_.onSource();
  if (encoder_->full()) endBlock();
}

TimePoint Session::Impl::repairDeadline() const {
  if (!encoder_ || encoder_->state() != RepairEncoder::State::kGathering) return kNever;
  Duration idle = std::clamp(rto_.smoothed() / kIdleShare, kMinIdle, kMaxIdle);
  const double rate = congestion_->pacingRate();
  if (!std::isinf(rate)) {
    const double apart = std::min(kIdleDatagrams * static_cast<double>(probe_.confirmed()) / rate, 1.0);
    idle += Duration(static_cast<Duration::rep>(apart * 1e9));
  }
  const Duration longest = std::max(rto_.smoothed() / LossDetector::kBlockShare, kMinIdle);
  return std::min(encoder_->lastAddedAt() + idle, encoder_->startedAt() + longest);
}

bool Session::Impl::repairDue() const {
  return encoder_ && !undone_ && encoder_->state() == RepairEncoder::State::kSending;
}

bool Session::Impl::sendRepair(TimePoint now, SessionDatagram* out) {
  std::span<const std::byte> payload;
  const RepairHeader repair = encoder_->next(&payload);
  PacketHeader header;
  beginHeader(now, FrameType::kRepair, &header);
  if (checksum_) {
    header.flags |= kFlagPayloadChecksum;
    header.payloadCrc = crc32c(payload);
  }
  writer_.begin(header);
  writer_.repairHeader(repair);
  encoder_->onSent();
  if (encoder_->state() == RepairEncoder::State::kIdle) board_.endGuard(encoder_->first(), encoder_->sources());
  ++counters_.repairFramesSent;
  if (!acks_.hasGaps()) acks_.onAckSent();
  give(out, Sent::kRepair, payload);
  // In flight they are counted with the frames that they cover: nobody acknowledges them.
  pacer_.onSent(now, lastBytes_);
  return true;
}

void Session::Impl::undoRepair() {
  --counters_.repairFramesSent;
  pacer_.undo(lastBytes_);
  if (repairing_) encoder_->undo();
}

std::size_t Session::Impl::detectLosses(TimePoint now) {
  const std::uint64_t lostBefore = losses_.lostFrames();
  const std::size_t bytes = losses_.detect(now, rto_, &board_);
  if (bytes == 0) return 0;
  const bool unrepaired = losses_.unrepairedFrames() != counters_.framesUnrepaired;
  counters_.framesUnrepaired = losses_.unrepairedFrames();
  // What a full queue drops comes in rows that no repair makes up for, and more frames would be more drops.
  if (rto_.latest() > rto_.minimum() + rto_.minimum() / kQueueShare) return bytes;
  lossEstimate_.onLost(losses_.lostFrames() - lostBefore);
  if (unrepaired && now - marginRaisedAt_ >= rto_.smoothed()) {
    marginRaisedAt_ = now;
    lossMargin_.onBlockFailed();
  }
  return bytes;
}

// What the peer says it found again was lost on the way all the same. False: more than was ever sent.
bool Session::Impl::noteRepaired(const ParsedPacket& packet, std::size_t* lostBytes) {
  *lostBytes = 0;
  if (packet.header.type != FrameType::kAck || packet.body.empty()) return true;
  std::uint32_t told = 0;
  if (!decodeRecovered(packet.body, &told)) return false;
  if (static_cast<std::int32_t>(packet.header.timestamp - reportedAt_) < 0 && peerRecovered_ != 0)
    return true;  // overtaken
  reportedAt_ = packet.header.timestamp;
  const std::uint64_t total = expandSequence(told, peerRecovered_);
  if (total > sentFrames()) return false;
  if (total > peerRecovered_) {
    lossEstimate_.onLost(total - peerRecovered_);
    const auto frames = static_cast<double>(total - peerRecovered_);
    *lostBytes = static_cast<std::size_t>(frames * coverFactor_ * static_cast<double>(probe_.confirmed()));
  } else {
    lossEstimate_.onArrivedAfterAll(peerRecovered_ - total);
  }
  peerRecovered_ = total;
  return true;
}

void Session::Impl::handleCovered(TimePoint now, const ParsedPacket& packet) {
  const std::uint64_t sequence = expandSequence(packet.header.sequence, acks_.next());
  const bool repeated = acks_.hasArrived(sequence);
  handleFrame(now, packet);
  if (!mayRepair() || !live() || state_ == SessionState::kPeerClosed) return;
  if (!decoder_) decoder_ = std::make_unique<RepairDecoder>(acks_);
  if (repeated) {
    if (decoder_->wasRecovered(sequence)) --recovered_;
    return;
  }
  if (!acks_.hasArrived(sequence)) return;  // outside the window
  // Of a type whose body means nothing it may be of any length.
  if (packet.body.size() > FrameSymbol::kMaxBodyBytes)
    return violate("the peer sent a frame that no repair frame can cover");
  if (!decoder_->onSource(sequence, {packet.header.type, packet.header.payloadCrc, packet.body, packet.payload})) {
    return violate("the peer sent a frame that contradicts its repair frames");
  }
  takeRecovered(now);
}

void Session::Impl::handleRepair(TimePoint now, const ParsedPacket& packet) {
  RepairHeader repair;
  if (!decodeRepairHeader(packet.body, &repair)) return violate("the peer sent a malformed repair frame");
  if (checksum_ && (packet.header.flags & kFlagPayloadChecksum) == 0) {
    return violate("the peer sent a repair frame without the agreed checksum");
  }
  if (!mayRepair()) {  // it was told so
    ++counters_.invalidReceived;
    return;
  }
  ++counters_.repairFramesReceived;
  if (state_ == SessionState::kPeerClosed) return;
  if (!decoder_) decoder_ = std::make_unique<RepairDecoder>(acks_);
  const std::uint64_t first = expandSequence(repair.firstSequence, acks_.next());
  if (!decoder_->onRepair(first, repair, packet.payload)) return violate("the peer sent an impossible repair frame");
  takeRecovered(now);
}

// What was found again goes the way of what arrives. Each frame may end the session.
void Session::Impl::takeRecovered(TimePoint now) {
  RepairDecoder::Recovered found;
  while (live() && state_ != SessionState::kPeerClosed) {
    const RepairDecoder::Next next = decoder_->nextRecovered(&found);
    if (next == RepairDecoder::Next::kNone) return;
    if (next == RepairDecoder::Next::kNonsense) return violate("the peer's repair frames give no frame");
    const bool checked = checksum_ && found.frame.type == FrameType::kData;
    if (checked && crc32c(found.frame.payload) != found.frame.payloadCrc) {
      ++counters_.corruptedReceived;  // as if it had not been found
      continue;
    }
    ParsedPacket packet;
    packet.header.type = found.frame.type;
    packet.header.sequence = truncateSequence(found.sequence);
    packet.header.flags = kFlagAckRequested;
    if (checked) packet.header.flags |= kFlagPayloadChecksum;
    packet.body = found.frame.body;
    packet.payload = found.frame.payload;
    ++recovered_;
    ++counters_.framesRecovered;
    handleFrame(now, packet);
  }
}

void Session::Impl::dropRepair() {
  repairing_ = false;
  if (encoder_) encoder_->stop();
  if (decoder_) decoder_->clear();
}

}  // namespace gloo_bypass
