// The sending half of rdma_session.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/verbs/rdma_session.h"

namespace gloo_bypass::verbs {
namespace {

// One in this many frames is signalled: its completion covers those before it.
constexpr std::uint32_t kSignalEvery = 16;
// A message costs its receiver memory besides its bytes; an empty one too.
constexpr std::uint64_t kMessageCharge = 64;

}  // namespace

std::uint64_t RdmaSession::windowCharge(std::uint64_t length) const { return length + kMessageCharge; }

// The last credit is kept for a frame that brings credits back: else two full sides could wait for each other for ever.
bool RdmaSession::haveCredit(bool forData) const {
  const std::uint32_t underWay = framesSent_ - slotsReturned_;
  return underWay + (forData ? 1 : 0) < peer_.credits && posted_.size() < sendDepth_;
}

bool RdmaSession::fitsWindow(std::uint64_t length) const {
  return windowUsed_ - windowReturned_ + windowCharge(length) <= peer_.eagerWindow;
}

bool RdmaSession::pumpOutgoing() {
  bool any = false;
  while (!outgoing_.empty() && haveCredit(/*forData=*/true)) {
    if (outgoing_.front().cancelled) {
      windowsUntil_ = kNever;
      (void)outgoing_.popFront();
      continue;
    }
    const std::size_t length = outgoing_.front().request.length;
    const bool small = length <= eagerLimit_;
    // After the close messages are copies, which do not live long enough to be read.
    if (offered_ == 0 && small && ending_ != Ending::kNone && !fitsWindow(length)) break;
    if (offered_ == 0 && small && fitsWindow(length)) {
      // Out of the queue first: its completion may post the next.
      const PendingSend send = outgoing_.popFront();
      sendEager(send);
    } else {
      if (offered_ == 0 && announced_.size() >= kMaxAnnouncedMessages) break;  // one that is offered is counted
      const Offer offered = announce(outgoing_.front().request);
      if (offered == Offer::kFailed) return true;
      if (offered == Offer::kWaits) break;
      (void)outgoing_.popFront();
    }
    any = true;
    if (state_ != ChannelState::kConnected && !flushing()) break;
  }
  return any;
}

void RdmaSession::sendEager(const PendingSend& send) {
  const SendRequest& request = send.request;
  RdmaFrame frame;
  frame.type = FrameType::kEager;
  frame.key = request.key;
  frame.length = request.length;
  frame.remoteOffset = request.remoteOffset;
  windowUsed_ += windowCharge(request.length);
  const auto confirms = request.confirmed ? std::optional(request.token) : std::nullopt;
  if (!pushFrame(frame, {request.data, request.length}, confirms)) return;
  ++counters_.messagesSent;
  ++counters_.eagerMessages;
  counters_.payloadBytesSent += request.length;
  if (!confirms && observer_ != nullptr) observer_->onSendComplete(request.token);
}

// Of the head of outgoing_. kWaits: for its windows; call it again.
RdmaSession::Offer RdmaSession::announce(const SendRequest& request) {
  if (offered_ == 0) {
    if (const Offer made = offer(request); made != Offer::kAnnounced) return made;
  }
  AnnouncedSend& announced = announcedSend(offered_);
  if (announced.windowWork > 0) return Offer::kWaits;
  announced.stage = AnnouncedSend::Stage::kAnnounced;
  RdmaFrame frame;
  frame.type = FrameType::kAnnounce;
  frame.key = request.key;
  frame.length = request.length;
  frame.remoteOffset = request.remoteOffset;
  frame.id = std::exchange(offered_, 0);
  frame.address = reinterpret_cast<std::uintptr_t>(request.data);
  frame.rails = static_cast<std::uint8_t>(reads_.size());
  for (std::size_t i = 0; announced.registration != nullptr && i < reads_.size(); ++i) {
    const ibv_mw* const window = announced.windows[i];
    frame.remoteKeys[i] = window != nullptr ? window->rkey : announced.registration->regions[i]->rkey;
  }
  if (!pushFrame(frame, {})) return Offer::kFailed;
  ++counters_.rendezvousMessages;
  return Offer::kAnnounced;
}

// Tells senders that their buffers are free.
bool RdmaSession::pumpDone() {
  bool any = false;
  while (!toConfirm_.empty() && haveCredit(/*forData=*/true)) {
    RdmaFrame frame;
    frame.type = FrameType::kDone;
    frame.id = toConfirm_.popFront();
    --announcedHere_;
    if (!pushFrame(frame, {})) return true;
    any = true;
  }
  return any;
}

// Every frame tells the peer how much it may send; when no frame goes its way, one of its own must.
void RdmaSession::pumpCredit() {
  // Two at least: else each such frame would call for the next one, to and fro for ever.
  const bool slotsDue = framesReceived_ - toldFrames_ >= std::max(2u, credits_ / 2);
  const bool windowDue =
      windowConsumed_ - toldWindow_ >= std::max<std::uint64_t>(1, device_.config.session.shortPathEagerBytes / 4);
  if ((slotsDue || windowDue) && haveCredit(/*forData=*/false)) (void)pushFrame({}, {});
}

void RdmaSession::pumpBye() {
  if (ending_ != Ending::kFlushing || !outgoing_.empty() || !toConfirm_.empty()) return;
  if (!haveCredit(/*forData=*/true)) return;
  ending_ = Ending::kByeSent;
  byeNumber_ = framesSent_;
  RdmaFrame frame;
  frame.type = FrameType::kBye;
  (void)pushFrame(frame, {});
}

// False: the session has failed.
bool RdmaSession::pushFrame(RdmaFrame frame, std::span<const std::byte> payload,
                            std::optional<OperationToken> confirms) {
  const auto slot = device_.slots->take();
  if (!slot) {
    fail(slot.error());
    return false;
  }
  frame.session = static_cast<std::uint32_t>(peerId_);
  frame.slotsReturned = toldFrames_ = receives_->reposted();
  frame.windowReturned = toldWindow_ = windowConsumed_;
  const auto bytes = device_.slots->bytes(slot.value());
  const std::size_t header = encodeFrame(frame, bytes);
  GLOO_BYPASS_CHECK(header + payload.size() <= bytes.size());
  if (!payload.empty()) std::memcpy(bytes.data() + header, payload.data(), payload.size());
  const std::size_t length = header + payload.size();

  ibv_send_wr& work = batch_[batchSize_];
  ibv_sge& piece = batchPieces_[batchSize_];
  piece = {reinterpret_cast<std::uintptr_t>(bytes.data()), static_cast<std::uint32_t>(length),
           device_.slots->localKey(slot.value())};
  work = {};
  work.opcode = IBV_WR_SEND;
  work.wr_id = workId(index(), WorkKind::kFrame, framesSent_);
  work.sg_list = &piece;
  work.num_sge = 1;
  if (framesSent_ - lastSignalled_ >= std::min(kSignalEvery, sendDepth_ / 2) || frame.type == FrameType::kBye ||
      confirms) {
    work.send_flags |= IBV_SEND_SIGNALED;
    lastSignalled_ = framesSent_;
  }
  if (length <= frames_->inlineBytes()) {
    work.send_flags |= IBV_SEND_INLINE;
    batchInline_[batchInlineSize_++] = slot.value();
    posted_.pushBack({kNoSlot, confirms});
  } else {
    posted_.pushBack({slot.value(), confirms});
  }
  ++framesSent_;
  ++counters_.packetsSent;
  counters_.wireBytesSent += length;
  return ++batchSize_ < kBatch || flushFrames();
}

// False: the session has failed.
bool RdmaSession::flushFrames() {
  if (batchSize_ == 0) return true;
  // The credits that these frames bring must be good.
  Status status = receives_->flush(*frames_);
  for (std::size_t i = 0; i + 1 < batchSize_; ++i) batch_[i].next = &batch_[i + 1];
  batch_[batchSize_ - 1].next = nullptr;
  if (status.ok()) status = frames_->post(batch_.data());
  batchSize_ = 0;
  for (std::size_t i = 0; i < batchInlineSize_; ++i) device_.slots->give(batchInline_[i]);
  batchInlineSize_ = 0;
  if (status.ok()) return true;
  fail(status.error());
  return false;
}

void RdmaSession::onSent(WorkKind kind, std::uint32_t number) {
  if (kind != WorkKind::kFrame) {
    if (number >= reads_.size()) return;  // of queue pairs that are gone, as the two below
    ReadsRail& rail = reads_[number];
    if (kind == WorkKind::kRead && !rail.underWay.empty()) onRead(rail);
    if (kind == WorkKind::kWindow && !rail.windowWork.empty()) onWindow(rail);
    return;
  }
  while (!posted_.empty()) {
    const PostedFrame frame = posted_.popFront();
    if (frame.slot != kNoSlot) device_.slots->give(frame.slot);
    const bool last = ((sentFrames_++) & kWorkNumberMask) == number;
    if (frame.confirms && observer_ != nullptr) {
      device_.completedSome = true;
      observer_->onSendComplete(*frame.confirms);
    }
    if (last) break;
  }
  if (ending_ == Ending::kByeSent && sentFrames_ == byeNumber_ + 1) ending_ = Ending::kByeAcknowledged;
  markDirty();
}

// The peer has left, and said which frames it had taken by then. The adapter's word for the others may still come; no
// send completes after the peer has closed.
void RdmaSession::settleConfirmed() {
  for (std::size_t i = 0; i < posted_.size(); ++i) {
    const auto confirms = std::exchange(posted_.at(i).confirms, std::nullopt);
    const std::uint32_t beyondTaken = sentFrames_ + static_cast<std::uint32_t>(i) - slotsReturned_;
    if (confirms && static_cast<std::int32_t>(beyondTaken) < 0) ended_.push_back(*confirms);
  }
}

// Fills in what every frame carries.
void RdmaSession::takeReturned(const RdmaFrame& frame) {
  const std::uint32_t slots = frame.slotsReturned - slotsReturned_;
  const std::uint64_t window = frame.windowReturned - windowReturned_;
  if (slots > framesSent_ - slotsReturned_ || window > windowUsed_ - windowReturned_) {
    violation("it gave back more credit than it was sent");
    return;
  }
  slotsReturned_ = frame.slotsReturned;
  windowReturned_ = frame.windowReturned;
}

void RdmaSession::onDone(std::uint64_t id) {
  AnnouncedSend* found = announced_.find(id);
  if (found == nullptr || found->stage != AnnouncedSend::Stage::kAnnounced) {
    violation("it confirmed a message that was not announced");
    return;
  }
  found->stage = AnnouncedSend::Stage::kEnding;
  if (found->windows[0] == nullptr) {
    finishSend(id);
  } else {
    toEnd_.pushBack(id);  // its windows are invalidated in this turn
  }
}

RdmaSession::AnnouncedSend& RdmaSession::announcedSend(std::uint64_t id) {
  AnnouncedSend* const found = announced_.find(id);
  GLOO_BYPASS_CHECK(found != nullptr);
  return *found;
}

// The peer has all of it, and no right to read it any more.
void RdmaSession::finishSend(std::uint64_t id) {
  const AnnouncedSend done = endAnnounced(id);
  if (observer_ != nullptr && !done.cancelled) observer_->onSendComplete(done.token);
}

// Releases and counts what finishSend() tells.
RdmaSession::AnnouncedSend RdmaSession::endAnnounced(std::uint64_t id) {
  AnnouncedSend done = announcedSend(id);
  (void)announced_.erase(id);
  giveWindows(done);
  if (done.registration != nullptr) device_.registrations->release(done.registration);
  ++counters_.messagesSent;
  counters_.payloadBytesSent += done.length;
  counters_.wireBytesSent += done.length;
  device_.completedSome = true;
  return done;
}

}  // namespace gloo_bypass::verbs
