// The receiving half of rdma_session.h. Every field of a frame comes from the peer and is checked before use.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/progress/progress_engine.h"
#include "transport/verbs/rdma_session.h"

namespace gloo_bypass::verbs {
namespace {

// A READ is not cut finer than this for the sake of several rails.
constexpr std::size_t kMinStripe = 64 * 1024;
constexpr std::size_t kStripeAlignment = 4096;

}  // namespace

void RdmaSession::onReceived(std::uint32_t slot, const ibv_wc& completion) {
  if (!frames_) return;  // of a queue pair that is gone: the slot may be another's by now
  if (completion.status != IBV_WC_SUCCESS) {
    onReceiveFailed(completion.status);
    return;
  }
  if (state_ == ChannelState::kConnecting) {
    early_.emplace_back(slot, completion.byte_len);
    return;
  }
  takeFrame(slot, completion.byte_len);
}

void RdmaSession::takeFrame(std::uint32_t slot, std::uint32_t length) {
  onFrame(receives_->received(slot, length));
  if (!frames_) return;
  if (Status status = receives_->repost(*frames_, slot); !status) fail(status.error());
}

void RdmaSession::onFrame(std::span<const std::byte> bytes) {
  ++framesReceived_;
  ++counters_.packetsReceived;
  counters_.wireBytesReceived += bytes.size();
  const auto decoded = decodeFrame(bytes);
  if (!decoded) {
    ++counters_.invalidReceived;
    violation("it sent a frame that no correct peer sends");
    return;
  }
  if (framesReceived_ - toldFrames_ > credits_) {
    violation("it sent more frames than it had credits for");
    return;
  }
  const RdmaFrame& frame = decoded->frame;
  if (frame.session != static_cast<std::uint32_t>(id_)) {
    ++counters_.invalidReceived;
    violation("it sent a frame of another session");
    return;
  }
  markDirty();
  takeReturned(frame);
  if (state_ != ChannelState::kConnected && !flushing()) return;
  switch (frame.type) {
    case FrameType::kEager:
      if (!flushing()) onEager(frame, decoded->payload);
      break;
    case FrameType::kAnnounce:
      if (!flushing()) onAnnounce(frame);
      break;
    case FrameType::kDone:
      onDone(frame.id);
      break;
    case FrameType::kCredit:
      break;
    case FrameType::kBye:
      onBye();
      break;
  }
}

void RdmaSession::consumed(std::uint64_t length) { windowConsumed_ += windowCharge(length); }

// An error: the session has failed, and nothing more can be received.
Status RdmaSession::fits(const Matcher::Message& message) {
  std::string problem = message.misfit();
  if (problem.empty()) return {};
  const Error error{ErrorScope::kSession, ErrorCode::kMessageTooLong, std::move(problem)};
  if (state_ == ChannelState::kFailed) matcher_.clear();  // what a lost peer had sent; else fail() does that
  fail(error);
  return Status(error);
}

void RdmaSession::onEager(const RdmaFrame& frame, std::span<const std::byte> payload) {
  windowReceived_ += windowCharge(payload.size());
  if (windowReceived_ - windowConsumed_ > device_.config.session.shortPathEagerBytes) {
    violation("it sent more than the window that it was given");
    return;
  }
  const SlotIndex slot = matcher_.arrive(frame.key);
  Matcher::Message& message = matcher_[slot];
  message.length = payload.size();
  message.remoteOffset = frame.remoteOffset;
  if (message.matched) {
    (void)deliver(slot, payload);
    return;
  }
  if (!payload.empty()) {
    message.body.staged = device_.staging.take(payload.size());
    std::memcpy(message.body.staged.data.get(), payload.data(), payload.size());
  }
  ++counters_.stagedReceives;
  message.arrived = monotonicNow();
  if (observer_ != nullptr) observer_->onMessageAnnounced(frame.key, payload.size());
}

void RdmaSession::onAnnounce(const RdmaFrame& frame) {
  if (frame.rails != reads_.size() || ++announcedHere_ > kMaxAnnouncedMessages) {
    violation("it announced more messages than a correct peer does, or for other devices");
    return;
  }
  const SlotIndex slot = matcher_.arrive(frame.key);
  Matcher::Message& message = matcher_[slot];
  Incoming& body = message.body;
  body.announced = true;
  body.id = frame.id;
  message.length = frame.length;
  message.remoteOffset = frame.remoteOffset;
  body.address = frame.address;
  body.remoteKeys = frame.remoteKeys;
  if (message.matched) {
    begin(slot);
    return;
  }
  message.arrived = monotonicNow();
  if (observer_ != nullptr) observer_->onMessageAnnounced(frame.key, static_cast<std::size_t>(frame.length));
}

Status RdmaSession::postReceive(const ReceiveRequest& request) {
  const bool open =
      state_ == ChannelState::kUnconnected || state_ == ChannelState::kConnecting || state_ == ChannelState::kConnected;
  if (!open && matcher_.oldestUnmatched(request.key) == nullptr) return refusal();
  while (const auto slot = matcher_.post(request)) {
    if (Matcher::Message& message = matcher_[*slot]; message.body.announced) {
      begin(*slot);
    } else {
      PooledBuffer staged = std::move(message.body.staged);
      const Status delivered = deliver(*slot, {staged.data.get(), static_cast<std::size_t>(message.length)});
      device_.staging.give(std::move(staged));
      if (!delivered) return delivered;
    }
    if (open && state_ == ChannelState::kFailed) return Status(error_);
    if (!request.persistent) break;
    if (!open && matcher_.oldestUnmatched(request.key) == nullptr) break;  // nothing more will come
  }
  markDirty();
  return {};
}

// A small message has met its receive.
Status RdmaSession::deliver(SlotIndex slot, std::span<const std::byte> payload) {
  const Matcher::Message& message = matcher_[slot];
  if (Status status = fits(message); !status) return status;
  message.place(0, payload);
  consumed(payload.size());
  complete(slot);
  return {};
}

// An announced message has met its receive.
void RdmaSession::begin(SlotIndex slot) {
  Matcher::Message& message = matcher_[slot];
  if (!fits(message)) return;
  Incoming& body = message.body;
  if (message.length == 0) {
    toConfirm_.pushBack(body.id);
    complete(slot);
    return;
  }
  auto registration = device_.registrations->acquire(message.destination(), static_cast<std::size_t>(message.length),
                                                     RegistrationUse::kLocalWrite);
  if (!registration) {
    fail({ErrorScope::kSession, registration.error().code, registration.error().message});
    return;
  }
  body.registration = registration.value();
  toRead_.pushBack(slot);
}

std::size_t RdmaSession::chunkOf(const Matcher::Message& message) const {
  const RdmaConfig& config = device_.config.rdma;
  // At least two at a time: while one arrives the next is already requested.
  std::size_t chunk = std::min({config.chunkBytes, std::max<std::size_t>(config.readBytes / 2, 1),
                                std::size_t{device_.rails[0]->rail().attributes.max_msg_sz}});
  if (reads_.size() > 1) {
    const auto share = static_cast<std::size_t>((message.length + reads_.size() - 1) / reads_.size());
    const std::size_t stripe = (share + kStripeAlignment - 1) / kStripeAlignment * kStripeAlignment;
    chunk = std::min(chunk, std::max(stripe, kMinStripe));
  }
  return static_cast<std::size_t>(std::min<std::uint64_t>(chunk, message.length - message.body.requested));
}

bool RdmaSession::pumpReads() {
  bool any = false;
  while (!toRead_.empty() && state_ == ChannelState::kConnected) {
    const auto freest = std::min_element(reads_.begin(), reads_.end(), [](const ReadsRail& a, const ReadsRail& b) {
      return a.underWay.size() < b.underWay.size();
    });
    if (freest->underWay.size() >= freest->pair->readDepth()) break;
    const SlotIndex slot = toRead_.front();
    if (readBytesUnderWay_ > 0 && readBytesUnderWay_ + chunkOf(matcher_[slot]) > device_.config.rdma.readBytes) {
      break;
    }
    if (!postRead(slot, static_cast<std::size_t>(freest - reads_.begin()))) return true;
    const Matcher::Message& message = matcher_[slot];
    if (message.body.requested == message.length) (void)toRead_.popFront();
    any = true;
  }
  return any;
}

// False: the session has failed.
bool RdmaSession::postRead(SlotIndex slot, std::size_t rail) {
  const Matcher::Message& message = matcher_[slot];
  Incoming& body = matcher_[slot].body;
  const std::size_t bytes = chunkOf(message);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(message.destination()) + body.requested,
                static_cast<std::uint32_t>(bytes), body.registration->regions[rail]->lkey};
  ibv_send_wr work{};
  work.opcode = IBV_WR_RDMA_READ;
  work.wr_id = workId(index(), WorkKind::kRead, static_cast<std::uint32_t>(rail));
  work.sg_list = &piece;
  work.num_sge = 1;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma.remote_addr = body.address + body.requested;
  work.wr.rdma.rkey = body.remoteKeys[rail];
  if (Status status = reads_[rail].pair->post(&work); !status) {
    fail(status.error());
    return false;
  }
  body.requested += bytes;
  ++body.underWay;
  reads_[rail].underWay.pushBack({slot, bytes});
  readBytesUnderWay_ += bytes;
  ++counters_.packetsSent;
  return true;
}

void RdmaSession::onRead(ReadsRail& rail) {
  const ReadUnderWay read = rail.underWay.popFront();
  readBytesUnderWay_ -= read.bytes;
  finishRead(read.slot);
}

void RdmaSession::finishRead(SlotIndex slot) {
  markDirty();
  Matcher::Message& message = matcher_[slot];
  const std::uint64_t length = message.length;
  Incoming& body = message.body;
  --body.underWay;
  if (body.underWay > 0 || body.requested < length) return;
  // The device has written to the receive's memory.
  if (message.receive.consumer.consume != nullptr && !message.orphaned) {
    message.place(0, {message.destination(), static_cast<std::size_t>(length)});
  }
  device_.registrations->release(std::exchange(body.registration, nullptr));
  counters_.wireBytesReceived += length;
  toConfirm_.pushBack(body.id);
  complete(slot);
}

void RdmaSession::complete(SlotIndex slot) {
  matcher_.complete(slot, [this](const Matcher::Message& message) {
    if (message.orphaned) return;
    ++counters_.messagesReceived;
    counters_.payloadBytesReceived += message.length;
    if (observer_ != nullptr) {
      device_.completedSome = true;
      observer_->onReceiveComplete(message.receive.token, static_cast<std::size_t>(message.length));
    }
  });
}

bool RdmaSession::cancelReceive(OperationToken token) {
  const bool waiting = matcher_.cancelWaiting(token);
  std::vector<SlotIndex> active;
  matcher_.forEachActiveOf(token, [&](SlotIndex slot) { active.push_back(slot); });
  // All of them first: when one is over, those behind it must not complete.
  for (const SlotIndex slot : active) matcher_[slot].orphaned = true;
  for (std::size_t i = toRead_.size(); i > 0; --i) {
    // The rest is not fetched.
    if (const SlotIndex slot = toRead_.popFront(); !matcher_[slot].orphaned) toRead_.pushBack(slot);
  }
  std::vector<SlotIndex> landing;
  for (const SlotIndex slot : active) {
    Incoming& body = matcher_[slot].body;
    if (!body.announced || matcher_[slot].complete) continue;
    matcher_[slot].length = body.requested;
    if (body.underWay > 0) {
      landing.push_back(slot);
      continue;
    }
    ++body.underWay;
    finishRead(slot);
    if (state_ != ChannelState::kConnected) return true;
  }
  awaitLanding(landing);
  return waiting || !active.empty();
}

// READs under way must land before the buffers are given back.
void RdmaSession::awaitLanding(const std::vector<SlotIndex>& slots) {
  constexpr auto kPatience = std::chrono::seconds(2);
  // A slot may be another message's once it is over; no READ of that one is posted meanwhile.
  const auto underWay = [&](ReadsRail& rail) {
    for (std::size_t i = 0; i < rail.underWay.size(); ++i) {
      if (std::find(slots.begin(), slots.end(), rail.underWay.at(i).slot) != slots.end()) return true;
    }
    return false;
  };
  const auto landed = [&] {
    return state_ != ChannelState::kConnected || std::none_of(reads_.begin(), reads_.end(), underWay);
  };
  if (slots.empty() || device_.drain(*this, landed, kPatience)) return;
  fail({ErrorScope::kSession, ErrorCode::kCancelled,
        "a receive was cancelled while the device wrote to its buffer, and the device did not finish"});
}

void RdmaSession::onBye() {
  peerEnd_ = std::max(peerEnd_, PeerEnd::kSaidBye);
  if (state_ != ChannelState::kConnected) return;
  // What has arrived whole can still be received; READs would fail, and must not land after this.
  endReads();
  outgoing_.clear();
  settleConfirmed();
  forgetReceives();
  setState(ChannelState::kPeerClosed);
}

}  // namespace gloo_bypass::verbs
