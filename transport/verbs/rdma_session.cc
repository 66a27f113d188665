#include "transport/verbs/rdma_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/base/check.h"
#include "transport/sessions/channel_keys.h"

namespace gloo_bypass::verbs {
namespace {

// SoftRoCE adds one place to the number requested, and rounds up to a power of two: 256 would become 512.
constexpr unsigned kSendDepth = 255;
// One for data, one that may stand unconfirmed, and one for the frame that confirms.
constexpr unsigned kMinCredits = 3;
// Binds and invalidations of windows; in SoftRoCE as above.
constexpr unsigned kWindowDepth = 31;
constexpr unsigned kInlineBytes = 220;  // a frame with a few elements
constexpr auto kLinger = std::chrono::seconds(3);
// After the peer's goodbye: how long its adapter may take to receive our answer.
constexpr auto kShortLinger = std::chrono::milliseconds(50);
// How long to wait for a large message until the peer confirms its READ.
constexpr auto kLargeLinger = std::chrono::milliseconds(100);

}  // namespace

RdmaSession::RdmaSession(RdmaDevice& device, DirtyList& dirtyList, std::uint32_t index, std::uint64_t id,
                         std::uint64_t entropy, const ChannelOptions& options, ChannelObserver* observer)
    : ChannelSession(dirtyList, id, index, options, observer), device_(device), matcher_(entropy) {}

RdmaSession::~RdmaSession() {
  stopTraffic();
  device_.control->close(id_, false);
}

Status RdmaSession::open() {
  const RdmaConfig& config = device_.config.rdma;
  if (config.credits < kMinCredits) {
    return Status(ErrorScope::kDevice, ErrorCode::kConfiguration,
                  fmt::format("GLOO_BYPASS_RDMA_CREDITS is {}: at least {} are needed", config.credits, kMinCredits));
  }
  const auto requests = static_cast<unsigned>(std::max(2, device_.rails[0]->limits().max_qp_wr));
  credits_ = std::min(config.credits, requests);
  // There are never more frames under way than the peer has given credits, and those that need no completion. In
  // SoftRoCE a place takes 512 bytes, for each connection.
  sendDepth_ = std::min({kSendDepth, requests, 4 * credits_ - 1});
  if (device_.keyed()) windowDepth_ = std::min(kWindowDepth, requests);
  for (auto& queues : device_.rails) {
    const bool first = reads_.empty();
    auto completions =
        queues->completions().reserve(kMaxReadsUnderWay + windowDepth_ + (first ? sendDepth_ + credits_ : 0));
    if (!completions) return completions.error();
    reads_.push_back({.completions = std::move(completions).value(),
                      .pair = nullptr,
                      .served = nullptr,
                      .underWay = {},
                      .windowWork = {}});
    ibv_cq* const queue = reads_.back().completions.queue();
    if (first) {
      const QueuePair::Depths depths{.sends = sendDepth_, .receives = credits_, .inlineBytes = kInlineBytes};
      auto frames = QueuePair::make(device_.api, *queues, queue, depths, config);
      if (!frames) return frames.error();
      frames_ = std::move(frames).value();
    }
    const QueuePair::Depths depths{.sends = kMaxReadsUnderWay, .readable = !device_.keyed()};
    auto pair = QueuePair::make(device_.api, *queues, queue, depths, config);
    if (!pair) return pair.error();
    reads_.back().pair = std::move(pair).value();
    if (!device_.keyed()) continue;
    auto served = QueuePair::make(device_.api, *queues, queue, {.sends = windowDepth_, .readable = true}, config);
    if (!served) return served.error();
    reads_.back().served = std::move(served).value();
  }
  receives_.emplace(*device_.slots, index());
  if (Status status = receives_->post(*frames_, credits_); !status) return status;
  device_.control->open(id_, this);
  return {};
}

RdmaAddress RdmaSession::address() const {
  RdmaAddress address;
  address.controlIp = device_.controlIp;
  address.controlPort = device_.control->port();
  address.eagerBytes = static_cast<std::uint32_t>(device_.config.rdma.eagerBytes);
  address.credits = credits_;
  address.eagerWindow = device_.config.session.shortPathEagerBytes;
  address.frames = frames_->address();
  for (const ReadsRail& rail : reads_) {
    address.rails.push_back(rail.pair->address());
    if (!rail.served) continue;
    const RailAddress served = rail.served->address();
    address.served.push_back({.number = served.queuePair, .firstPsn = served.firstPsn});
  }
  return address;
}

Status RdmaSession::connect(TimePoint now, const ChannelAddress& address) {
  const auto decoded = decodeRdmaAddress(address.portAddress);
  if (!decoded) return decoded.error();
  const RdmaAddress& peer = decoded.value();
  if (peer.rails.size() != reads_.size()) {
    return Status(ErrorScope::kSession, ErrorCode::kConfiguration,
                  fmt::format("this rank uses {} RDMA devices, the peer {}: set GLOO_BYPASS_RDMA_DEVICES to as many on "
                              "both",
                              reads_.size(), peer.rails.size()));
  }
  // Where the settings differ, agreeOnKeys() names them.
  const bool sameSetting = address.offer.empty() != device_.keyed();
  if (sameSetting && peer.served.empty() == device_.keyed()) {
    return Status(ErrorScope::kSession, ErrorCode::kConfiguration,
                  "the peer's release ends the right to read in another way: install the same version on both ranks");
  }
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const auto own = device_.rails[i]->rail().attributes.link_layer;
    if (own == peer.rails[i].linkLayer) continue;
    const auto name = [](int layer) { return layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet (RoCE)" : "InfiniBand"; };
    return Status(ErrorScope::kSession, ErrorCode::kConfiguration,
                  fmt::format("RDMA device {} of this rank is on {}, the peer's on {}: choose devices of one kind with "
                              "GLOO_BYPASS_RDMA_DEVICES",
                              device_.rails[i]->rail().deviceName, name(own), name(peer.rails[i].linkLayer)));
  }
  if (endpointOf(device_.controlIp, 0).isLoopback() != endpointOf(peer.controlIp, 0).isLoopback()) {
    return Status(ErrorScope::kSession, ErrorCode::kConfiguration,
                  "one rank's address for the control connection is the loopback's, which reaches no other host: name "
                  "an interface with GLOO_SOCKET_IFNAME or GLOO_BYPASS_INTERFACE");
  }
  // Last: it uses the private key up, and another address may still be tried after the errors above.
  if (Status agreed = agreeOnKeys(agreement_.get(), address); !agreed) return agreed;
  peerId_ = address.sessionId;
  peer_ = peer;
  peerName_ = address.description;
  eagerLimit_ = std::min<std::size_t>(device_.config.rdma.eagerBytes, peer.eagerBytes);
  if (Status status = frames_->connect(peer.frames); !status) return status;
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    if (Status status = reads_[i].pair->connect(peer.servedAt(i)); !status) return status;
    if (!reads_[i].served) continue;
    if (Status status = reads_[i].served->connect(peer.rails[i]); !status) return status;
  }
  state_ = ChannelState::kConnecting;
  connectDeadline_ = now + options_.connectTimeout;
  const auto keys = agreement_ ? std::optional(controlKeysOf(*agreement_)) : std::nullopt;
  return device_.control->connect(id_, peerId_, peer.controlIp, peer.controlPort, keys);
}

bool RdmaSession::hasQueuePair(const RailQueues& queues, std::uint32_t number) const {
  const auto is = [number](const std::unique_ptr<QueuePair>& pair) { return pair && pair->number() == number; };
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    if (device_.rails[i].get() != &queues) continue;
    return is(reads_[i].pair) || is(reads_[i].served) || (i == 0 && is(frames_));
  }
  return false;
}

bool RdmaSession::completesIn(const ibv_cq* queue) const {
  return std::any_of(reads_.begin(), reads_.end(),
                     [&](const ReadsRail& rail) { return rail.completions.queue() == queue; });
}

Status RdmaSession::refusal() const {
  if (state_ == ChannelState::kFailed) return Status(error_);
  return Status(
      ErrorScope::kSession, ErrorCode::kPeerClosed,
      state_ == ChannelState::kPeerClosed ? "the peer has closed the connection" : "the channel has been closed");
}

Status RdmaSession::postSend(const SendRequest& request) {
  if (state_ != ChannelState::kUnconnected && state_ != ChannelState::kConnecting &&
      state_ != ChannelState::kConnected) {
    return refusal();
  }
  outgoing_.pushBack({request, {}, false});
  return {};
}

bool RdmaSession::cancelSend(OperationToken token) {
  if (std::erase(ended_, token) > 0) return false;
  if (offered_ != 0 && announcedSend(offered_).token == token) {
    withdrawOffer();
    return true;
  }
  for (std::size_t i = 0; i < outgoing_.size(); ++i) {
    PendingSend& send = outgoing_.at(i);
    if (send.cancelled || send.request.token != token) continue;
    send.cancelled = true;
    return true;
  }
  for (std::size_t i = 0; i < posted_.size(); ++i) {
    if (posted_.at(i).confirms != token) continue;
    posted_.at(i).confirms.reset();  // a copy, which goes on
    return false;
  }
  std::optional<std::uint64_t> announced;
  announced_.forEach([&](std::uint64_t id, const AnnouncedSend& send) {
    if (send.token == token) announced = id;
  });
  if (!announced) return false;
  if (announcedSend(*announced).stage == AnnouncedSend::Stage::kEnding) {
    awaitEnd(*announced);
    return false;
  }
  // The peer may be reading the buffer at this moment: only the end of the queue pairs stops it.
  fail({ErrorScope::kSession, ErrorCode::kCancelled, "a send was cancelled after it had been offered to the peer"});
  return true;
}

void RdmaSession::onPeerReady() noexcept {
  if (state_ != ChannelState::kConnecting) return;
  connectDeadline_ = kNever;
  setState(ChannelState::kConnected);
  for (const auto& [slot, length] : std::exchange(early_, {})) {
    if (frames_) takeFrame(slot, length);
  }
  markDirty();
}

void RdmaSession::onPeerGone(bool aborted, const std::string& cause) noexcept {
  peerEnd_ = std::max(peerEnd_, PeerEnd::kGone);
  peerEndError_ = {ErrorScope::kSession, aborted ? ErrorCode::kPeerClosed : ErrorCode::kPeerVanished, cause};
  // What its adapter had delivered before comes first: looked at when all completions have been.
  markDirty();
}

bool RdmaSession::pump(TimePoint now, bool mayRead) {
  windowsAt_ = kNever;
  bool any = pumpEnd(now);
  if (state_ == ChannelState::kConnected || (flushing() && frames_)) {
    any |= pumpDone();
    if (frames_) any |= pumpEnds();
    if (frames_) any |= pumpOutgoing();
    if (frames_) pumpCredit();
    if (frames_) pumpBye();
    // Before the READs, which a device in software carries out while they are posted: what the peer can do meanwhile
    // must not wait.
    if (frames_ && batchSize_ > 0) any |= flushFrames();
    if (mayRead) any |= pumpReads();
  }
  return any;
}

// One that is finished may stay until its channel is gone, and has nothing to wait for.
TimePoint RdmaSession::deadline() const {
  return finished() ? kNever : std::min({connectDeadline_, lingerUntil_, windowsAt_});
}

// Time-outs, the peer's end, and our own. True if anything changed.
bool RdmaSession::pumpEnd(TimePoint now) {
  if (state_ == ChannelState::kConnecting && now >= connectDeadline_) {
    fail({ErrorScope::kSession, ErrorCode::kTimedOut,
          fmt::format("the peer did not answer in time: its control connection is made {}",
                      device_.control->wayOf(id_))});
    return true;
  }
  if (peerEnd_ == PeerEnd::kGone) {
    if (!device_.caughtUp()) {
      markDirty();
      return false;
    }
    peerEnd_ = PeerEnd::kLost;
    if (state_ == ChannelState::kConnected || state_ == ChannelState::kConnecting) fail(peerEndError_);
    if (state_ == ChannelState::kClosed) ending_ = Ending::kFinished;
    return true;
  }
  const bool bothSaidBye = ending_ == Ending::kByeAcknowledged && peerEnd_ >= PeerEnd::kSaidBye;
  if (state_ == ChannelState::kClosed && !finished() && (peerGone() || now >= lingerUntil_ || bothSaidBye)) {
    ending_ = Ending::kFinished;
    return true;
  }
  return false;
}

void RdmaSession::onWorkFailed(WorkKind kind, std::uint32_t number, ibv_wc_status status) {
  markDirty();
  if (state_ == ChannelState::kClosed) {
    ending_ = Ending::kFinished;  // our bye will never be acknowledged
    return;
  }
  if (state_ != ChannelState::kConnected || peerGone()) return;
  const char* what = kind == WorkKind::kRead     ? "RDMA READ"
                     : kind == WorkKind::kWindow ? "bind or invalidation of a memory window"
                                                 : "SEND";
  const std::size_t rail = kind != WorkKind::kFrame && number < device_.rails.size() ? number : 0;
  std::string message = fmt::format("RDMA device {}: a {} failed: {}", device_.rails[rail]->rail().deviceName, what,
                                    device_.api.completionStatusName(status));
  ErrorCode code = ErrorCode::kPeerVanished;
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      message += fmt::format(
          " (no answer after {} tries of {} ms: GLOO_BYPASS_RDMA_RETRY_COUNT, "
          "GLOO_BYPASS_RDMA_TIMEOUT)",
          device_.config.rdma.retryCount + 1, (4096ull << device_.config.rdma.timeoutExponent) / 1'000'000);
      break;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
      code = ErrorCode::kInternal;
      break;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
      code = ErrorCode::kPeerViolatedProtocol;
      break;
    case IBV_WC_WR_FLUSH_ERR:
      if (kind == WorkKind::kWindow) {
        message += "; the queue pair that the peer reads from is in error: a READ of the peer or the device failed";
        break;
      }
      [[fallthrough]];
    default:  // SoftRoCE says "local QP operation error" when its interface is down
      message += "; is the device's interface up?";
      break;
  }
  fail({ErrorScope::kSession, code, std::move(message)});
}

void RdmaSession::onReceiveFailed(ibv_wc_status status) {
  if (state_ != ChannelState::kConnected || peerGone() || status == IBV_WC_WR_FLUSH_ERR) return;
  fail({ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol,
        fmt::format("RDMA device {}: what the peer sent could not be received: {}", device_.rails[0]->rail().deviceName,
                    device_.api.completionStatusName(status))});
}

void RdmaSession::violation(const char* what) {
  fail({ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, fmt::format("the peer broke the protocol: {}", what)});
}

// The last step of a change: the observer may cancel, receive or close.
void RdmaSession::setState(ChannelState state) {
  state_ = state;
  while (observer_ != nullptr && !ended_.empty()) {
    const OperationToken token = ended_.back();
    ended_.pop_back();
    observer_->onSendComplete(token);
  }
  if (observer_ != nullptr && state_ == state) observer_->onStateChange(state);
}

void RdmaSession::fail(Error error) {
  if (state_ == ChannelState::kFailed || state_ == ChannelState::kClosed) {
    if (state_ == ChannelState::kClosed) ending_ = Ending::kFinished;
    markDirty();
    return;
  }
  error_ = std::move(error);
  stopTraffic();
  device_.control->close(id_, !peerGone());
  peerEnd_ = PeerEnd::kLost;
  connectDeadline_ = kNever;
  outgoing_.clear();
  toConfirm_.clear();
  toRead_.clear();
  error_.isLoss() ? forgetReceives() : matcher_.clear();
  setState(ChannelState::kFailed);
  markDirty();
}

// What has arrived whole can still be received.
void RdmaSession::forgetReceives() {
  matcher_.forgetReceives([](const Matcher::Message& message) { return !message.body.announced; });
}

// After it no adapter touches the user's memory.
void RdmaSession::stopTraffic() {
  endReads();
  frames_.reset();
  early_.clear();
  device_.takeCompletions();
  reads_.clear();
  receives_.reset();
  while (!posted_.empty()) {
    if (const std::uint32_t slot = posted_.popFront().slot; slot != kNoSlot) device_.slots->give(slot);
  }
  for (std::size_t i = 0; i < batchInlineSize_; ++i) device_.slots->give(batchInline_[i]);
  batchSize_ = batchInlineSize_ = 0;
}

// Neither the peer nor we read any more.
void RdmaSession::endReads() {
  destroyWindows();
  for (ReadsRail& rail : reads_) {
    rail.pair.reset();
    rail.served.reset();
  }
  endConfirmed();
  releaseMemory();
}

// Only once the windows and the queue pairs of READs are gone.
void RdmaSession::releaseMemory() {
  announced_.forEach([&](std::uint64_t, AnnouncedSend& send) {
    if (send.registration != nullptr) device_.registrations->release(send.registration);
  });
  announced_.clear();
  offered_ = 0;
  toEnd_.clear();
  matcher_.forEachActive([&](Matcher::Message& message) {
    const Registration* registration = std::exchange(message.body.registration, nullptr);
    if (registration != nullptr) device_.registrations->release(registration);
  });
  toRead_.clear();
  for (ReadsRail& rail : reads_) {
    rail.underWay.clear();
    rail.windowWork.clear();
  }
  readBytesUnderWay_ = 0;
}

bool RdmaSession::lingerForLarge() {
  const auto calm = [this] {
    if (state_ != ChannelState::kConnected) return true;
    (void)pumpEnds();
    (void)pumpOutgoing();
    (void)pumpDone();
    if (batchSize_ > 0) (void)flushFrames();
    const bool readsOver =
        std::all_of(reads_.begin(), reads_.end(), [](const ReadsRail& r) { return r.underWay.empty(); });
    bool large = !announced_.empty();
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      const PendingSend& send = outgoing_.at(i);
      large = large || (!send.cancelled && send.request.length > eagerLimit_);
    }
    return readsOver && !large;
  };
  return calm() || device_.drain(*this, calm, Duration(kLargeLinger));
}

void RdmaSession::close(TimePoint now, bool abort) {
  observer_ = nullptr;
  if (state_ == ChannelState::kClosed) return;
  const bool goodOrder = !abort && state_ == ChannelState::kConnected && !peerGone();
  ending_ = Ending::kLeaving;
  toRead_.clear();  // receives are forgotten; READs under way are waited for
  if (goodOrder && lingerForLarge() && state_ == ChannelState::kConnected) {
    releaseMemory();
    matcher_.clear();
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      PendingSend& send = outgoing_.at(i);
      if (send.cancelled || send.request.length == 0) continue;
      send.owned = device_.staging.take(send.request.length);
      std::copy_n(send.request.data, send.request.length, send.owned.data.get());
      send.request.data = send.owned.data.get();
    }
    ending_ = Ending::kFlushing;
    state_ = ChannelState::kClosed;
    lingerUntil_ = now + Duration(kLinger);
    markDirty();
    return;
  }
  if (!abort && state_ == ChannelState::kPeerClosed && !peerGone()) {
    device_.control->close(id_, false);
    ending_ = Ending::kLingering;
    state_ = ChannelState::kClosed;
    lingerUntil_ = now + Duration(kShortLinger);
    matcher_.clear();
    markDirty();
    return;
  }
  stopTraffic();
  matcher_.clear();
  outgoing_.clear();
  device_.control->close(id_, state_ != ChannelState::kFailed && state_ != ChannelState::kPeerClosed);
  state_ = ChannelState::kClosed;
  ending_ = Ending::kFinished;
  markDirty();
}

}  // namespace gloo_bypass::verbs
