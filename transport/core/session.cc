// The user's calls and the life cycle.
#include "transport/core/session.h"

#include <algorithm>

#include "transport/base/check.h"

namespace gloo_bypass {
namespace {

// Below it an acknowledgement is late only because the peer is busy; on memory links nothing is ever lost, and a
// preempted peer must not be answered with copies into its full ring.
constexpr Duration kLosslessMinRto = std::chrono::milliseconds(200);
constexpr Duration kLosslessAckDelay = std::chrono::milliseconds(5);
constexpr std::size_t kShortPathSendBuffer = 4u << 20;
// First credit and send buffer of a long path: TCP's tcp_rmem maximum is 6 MiB; autotuning goes on from here.
constexpr std::size_t kLongPathFirstWindow = 4u << 20;
constexpr Duration kLinger = std::chrono::seconds(30);
// How long a closed session answers what the peer retransmits because our last acknowledgement was lost.
constexpr Duration kMaxTimeWait = std::chrono::seconds(1);

SessionConfig adjusted(SessionConfig config) {
  if (config.losslessLink) {
    config.minRto = std::max(config.minRto, kLosslessMinRto);
    config.maxRto = std::max(config.maxRto, config.minRto);
  }
  return config;
}

bool wantsChecksum(const SessionConfig& config) {
  if (config.sealedLink) return false;  // the seal checks more
  return config.payloadChecksum == PayloadChecksum::kOn ||
         (config.payloadChecksum == PayloadChecksum::kAuto && !config.losslessLink && !config.verifiedLink);
}

// Above 2^32, so that expanding a number from before it cannot underflow.
std::uint64_t firstSequence(std::uint32_t initial) { return (1ull << 32) + initial; }

}  // namespace

SharedMessages::SharedMessages(const SessionConfig& config, std::uint64_t seed)
    : sends(config, &events, &counters),
      incoming(CreditWindow(config.shortPathEagerBytes, std::max(config.maxBufferBytes, config.shortPathEagerBytes)),
               &events, &controls, &counters, seed) {}

Session::Session(const SessionConfig& config, std::uint64_t localId, std::uint64_t entropy, const Session* lead)
    : config_(adjusted(config)),
      localId_(localId),
      entropy_(entropy),
      checksum_(wantsChecksum(config)),
      own_(std::make_shared<SharedMessages>(config_, mixBits(~entropy))),
      shared_(lead == nullptr ? own_ : lead->shared_),
      path_{.rtt = RtoEstimator(config_.minRto, config_.maxRto)},
      acks_(config_.losslessLink ? kLosslessAckEvery : kAckEvery,
            config_.losslessLink ? kLosslessAckDelay : kPeerAckDelay),
      initialSequence_(static_cast<std::uint32_t>(mixBits(entropy))),
      board_(firstSequence(initialSequence_)),
      firstSent_(board_.next()) {
  own_->sends.setBufferLimit(std::min(kShortPathSendBuffer, config_.maxBufferBytes));
}

wire::Hello Session::localHello() const {
  wire::Hello hello;
  hello.senderId = localId_;
  hello.rendezvousBytes = config_.rendezvousBytes;
  hello.maxBufferBytes = config_.maxBufferBytes;
  hello.initialSequence = initialSequence_;
  hello.maxDatagramBytes = static_cast<std::uint32_t>(path_.linkDatagramBytes);
  hello.lossless = config_.losslessLink;
  hello.payloadChecksum = checksum_;
  hello.capabilities = wire::kCapabilityPieces | wire::kCapabilitySmall;
  if (mayRepair()) hello.capabilities |= wire::kCapabilityRepair;
  if (takesChunks()) hello.capabilities |= wire::kCapabilityChunks;
  return hello;
}

void Session::setState(SessionState state) {
  state_ = state;
  events_.pushBack({.type = SessionEvent::Type::kStateChange, .state = state});
}

void Session::markLossless() {
  GLOO_BYPASS_CHECK(state_ == SessionState::kIdle);
  config_.losslessLink = true;
  config_ = adjusted(config_);
  own_->sends.markLossless();
  checksum_ = wantsChecksum(config_);
  path_.rtt = RtoEstimator(config_.minRto, config_.maxRto);
  acks_.setAckEvery(kLosslessAckEvery);
  acks_.setMaxDelay(kLosslessAckDelay);
}

void Session::markVerified() {
  GLOO_BYPASS_CHECK(state_ == SessionState::kIdle);
  config_.verifiedLink = true;
  checksum_ = wantsChecksum(config_);
}

void Session::markSealed() {
  GLOO_BYPASS_CHECK(state_ == SessionState::kIdle);
  config_.sealedLink = true;
  checksum_ = wantsChecksum(config_);
}

void Session::connect(TimePoint now, std::uint64_t remoteId, std::size_t maxDatagramBytes,
                      std::size_t firstDatagramBytes) {
  if (state_ != SessionState::kIdle) return;
  remoteId_ = remoteId;
  path_.linkDatagramBytes = std::clamp(maxDatagramBytes, wire::kMinDatagramBytes, wire::kMaxDatagramBytes);
  path_.firstDatagramBytes = std::max(firstDatagramBytes, wire::kMinDatagramBytes);
  state_ = SessionState::kConnecting;
  liveness_.lastReceivedAt = now;
  if (handshake_.heard() && handshake_.remote()->senderId != remoteId) handshake_.forgetRemote();
  handshake_.start(now, config_.connectTimeout);
  if (!handshake_.heard()) return;
  if (auto error = compareSettings(localHello(), *handshake_.remote())) {
    enterFailed(*error, false);
    return handshake_.makeDue();
  }
  acks_.start(firstSequence(handshake_.remote()->initialSequence));
}

void Session::establish(TimePoint now) {
  handshake_.finish();
  const wire::Hello& remote = *handshake_.remote();
  const std::size_t largest =
      std::clamp<std::size_t>(remote.maxDatagramBytes, wire::kMinDatagramBytes, path_.linkDatagramBytes);
  path_.mtu.start(now, config_.losslessLink ? largest : std::min(largest, path_.firstDatagramBytes), largest,
                  sealBytes(), canShrink(/*toNarrow=*/true) ? PathProbe::kTries : PathProbe::kTriesToEnd);
  choosePath();
  chooseRepair();
  liveness_.timerSince = liveness_.lastSentAt = now;
  if (state_ == SessionState::kConnecting) setState(SessionState::kEstablished);
}

// Whether the path's round trip is as long as `roundTrip`. If it was `before`, it must fall well below, so that a
// path at its edge does not go to and fro.
bool Session::isBeyond(Duration roundTrip, bool before) const {
  return !config_.losslessLink && pathRtt() >= (before ? roundTrip * 3 / 4 : roundTrip);
}

Duration Session::pathRtt() const {
  return path_.congestion ? path_.congestion->pathRtt(path_.rtt.minimum()) : path_.rtt.minimum();
}

void Session::chooseController() {
  const bool bbrPath = isBeyond(config_.bbrRtt, path_.fitsBbr);
  CongestionControl kind = config_.congestionControl;
  const bool kept = kind != CongestionControl::kAuto || bbrPath == path_.fitsBbr;
  path_.fitsBbr = bbrPath;
  if (path_.congestion && kept) return;
  if (kind == CongestionControl::kAuto) {
    kind = config_.losslessLink ? CongestionControl::kFixed
                                : (bbrPath ? CongestionControl::kBbr : CongestionControl::kSwift);
  }
  path_.congestion = makeCongestionController(kind, config_, path_.mtu.confirmed(), entropy_);
  path_.pacer.setRate(path_.congestion->pacingRate(), path_.mtu.confirmed());
}

// Which congestion controller, and which of the two ways of sending, fit the measured round trip.
void Session::choosePath() {
  const bool first = path_.congestion == nullptr;
  chooseController();
  const bool isLong = isBeyond(config_.longPathRtt, path_.isLong);
  if (!first && isLong == path_.isLong) return;
  path_.isLong = isLong;
  if (isRail()) return;  // how messages go is for the lead's path to say
  if (isLong) incoming_.credit().raiseTo(kLongPathFirstWindow);
  resizeBuffers();
  sends_.setLongPath(isLong);
}

// Four windows: what is in flight, what was just written behind it, and room for the window to double.
void Session::resizeBuffers() {
  shared_->windowBytes -= std::exchange(path_.countedWindow, path_.congestion->windowBytes());
  shared_->windowBytes += path_.countedWindow;
  if (isRail()) return;  // how long the buffers are is for the lead's path to say
  const std::size_t wanted =
      path_.isLong ? std::max(kLongPathFirstWindow, 4 * shared_->windowBytes) : kShortPathSendBuffer;
  sends_.setBufferLimit(std::min(wanted, config_.maxBufferBytes));
}

Status Session::postSend(const SendRequest& request) {
  if (state_ == SessionState::kFailed) return error_;
  if (state_ != SessionState::kIdle && state_ != SessionState::kConnecting && state_ != SessionState::kEstablished) {
    return {ErrorScope::kSession, ErrorCode::kPeerClosed, "the connection is closed; nothing can be sent any more"};
  }
  if (request.length > kMaxMessageBytes) {
    return {ErrorScope::kOperation, ErrorCode::kInvalidArgument, "a message is longer than 2^62 bytes"};
  }
  sends_.post(request);
  return {};
}

// After the end what has arrived can still be received.
Status Session::postReceive(const ReceiveRequest& request) {
  const bool open =
      state_ == SessionState::kIdle || state_ == SessionState::kConnecting || state_ == SessionState::kEstablished;
  if (!open && !incoming_.oldestUnmatched(request.key)) {
    if (state_ == SessionState::kFailed) return error_;
    return {ErrorScope::kSession, ErrorCode::kPeerClosed, "the connection is closed; nothing more will arrive"};
  }
  Status status = incoming_.post(request);
  if (!status) forgetEvents(SessionEvent::Type::kReceiveComplete, request.token);  // of the messages before
  if (!status && status.error().scope == ErrorScope::kSession) {
    if (live()) {
      enterFailed(status.error(), true);
    } else {
      own_->incoming.clear();  // as that does: nothing can follow a message that does not fit
    }
  }
  return status;
}

// No completion comes after a call that ends an operation.
void Session::forgetEvents(SessionEvent::Type type, OperationToken token) {
  events_.removeIf([=](const SessionEvent& event) { return event.type == type && event.token == token; });
}

bool Session::cancelReceive(OperationToken token) {
  forgetEvents(SessionEvent::Type::kReceiveComplete, token);
  return incoming_.cancel(token);
}

bool Session::cancelSend(OperationToken token) {
  settleLast();  // that may complete it just now
  forgetEvents(SessionEvent::Type::kSendComplete, token);
  std::uint64_t id = 0;
  switch (sends_.cancel(token, &id)) {
    case SendQueue::Cancel::kUnknown:
    case SendQueue::Cancel::kGoesOn:
      return false;
    case SendQueue::Cancel::kDone:
      return true;
    case SendQueue::Cancel::kWithdraw:
      controls_.pushBack({wire::FrameType::kWithdraw, id});
      return true;
    case SendQueue::Cancel::kPartlySent:
      enterFailed(
          {ErrorScope::kSession, ErrorCode::kCancelled,
           "a send was cancelled after part of it had gone out, and it is too long to be copied; the connection cannot "
           "go on"},
          true);
      return true;
  }
  return false;
}

void Session::dropEverything() {
  dropUnderWay();
  own_->incoming.clear();
}

void Session::dropUnderWay() {
  own_->over = true;
  own_->sends.clear();
  board_.clear();
  controls_.clear();
  undone_.reset();
  ending_.closeSequence.reset();
  liveness_.lossProbeDue = liveness_.pingDue = false;
  losses_.reset();
  path_.mtu.stop();
  piecesIn_.clear();
  dropRepair();
}

void Session::fail(const Error& error, bool tellPeer) {
  // After the peer's close the link may well end; what has arrived can still be received.
  if (state_ != SessionState::kPeerClosed) enterFailed(error, tellPeer);
}

void Session::enterFailed(const Error& error, bool tellPeer) {
  if (!live()) return;
  error_ = error;
  dropUnderWay();
  error.isLoss() && state_ != SessionState::kClosing ? own_->incoming.forgetReceives() : own_->incoming.clear();
  handshake_.stop();  // who fails over the peer's settings makes a last Hello due, for the peer to fail as well
  ending_.resetDue = ending_.tellsPeer = tellPeer && remoteId_ != 0 && handshake_.heard();
  if (state_ == SessionState::kClosing) {
    state_ = SessionState::kClosed;  // after close() nobody listens
    ending_.deadline = kNever;
  } else {
    setState(SessionState::kFailed);
  }
}

void Session::violate(const std::string& what) {
  enterFailed({ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol, what + "; the connection is closed"}, true);
}

// Closes without delivering. A peer that was never heard needs no reset: its own connect times out.
void Session::abandon(TimePoint now) {
  dropEverything();
  handshake_.stop();
  ending_.resetDue = ending_.tellsPeer = handshake_.heard();
  ending_.deadline = kNever;  // a close that it cuts short need not linger
  state_ = SessionState::kClosed;
  awaitLostReset(now);
}

TimePoint Session::timeWaitEnd(TimePoint now) const { return now + std::min(3 * rto(), kMaxTimeWait); }

void Session::awaitLostReset(TimePoint now) {
  if (ending_.tellsPeer && !config_.losslessLink) ending_.deadline = timeWaitEnd(now);
}

// The last reset was lost if the peer goes on.
void Session::repeatReset(TimePoint now, wire::FrameType heard) {
  if (heard == wire::FrameType::kReset) ending_.tellsPeer = false;
  if (ending_.tellsPeer && now >= ending_.resetAgainAt) ending_.resetDue = true;
}

void Session::close(TimePoint now, bool abort) {
  const SessionState before = state_;
  if (before == SessionState::kClosed || before == SessionState::kClosing) {
    if (abort && before == SessionState::kClosing) abandon(now);
    return;
  }
  settleLast();
  own_->discarding = true;
  if (before == SessionState::kFailed || before == SessionState::kIdle) {
    dropEverything();
    state_ = SessionState::kClosed;
    awaitLostReset(now);
  } else if (before == SessionState::kPeerClosed) {
    becomeClosed(now);
  } else if (abort || !sends_.adoptAll() || (!handshake_.heard() && sends_.allSent())) {
    abandon(now);
  } else {
    incoming_.clear();
    state_ = SessionState::kClosing;
    ending_.deadline = now + std::min(kLinger, config_.peerTimeout);
  }
  events_.clear();
}

// The peer has closed too: only what it retransmits is still answered.
void Session::becomeClosed(TimePoint now) {
  dropEverything();
  state_ = SessionState::kClosed;
  ending_.deadline = config_.losslessLink ? now : timeWaitEnd(now);
}

// Everything the peer sent has arrived and it listens no more.
void Session::enterPeerClosed(TimePoint now) {
  acks_.requestAck();
  if (state_ == SessionState::kClosing) return becomeClosed(now);
  dropUnderWay();
  incoming_.forgetReceives();
  setState(SessionState::kPeerClosed);
}

bool Session::pollEvent(SessionEvent* out) {
  if (events_.empty()) return false;
  *out = events_.popFront();
  return true;
}

bool Session::drained() const {
  if (leadIsOver()) return true;
  if (ending_.resetDue) return false;
  if (state_ == SessionState::kFailed) return !handshake_.due();
  if (state_ != SessionState::kClosed) return false;
  return ending_.deadline == kNever && !acks_.ackDue(TimePoint{});
}

PathFigures Session::path() const {
  return {path_.rtt.smoothed(), path_.rtt.minimum(), path_.congestion ? path_.congestion->windowBytes() : 0,
          path_.mtu.confirmed()};
}

std::size_t Session::memoryBytes() const {
  return sizeof(*this) + own_->sends.memoryBytes() + own_->incoming.memoryBytes() + board_.memoryBytes() +
         acks_.memoryBytes() + piecesOut_.memoryBytes() + piecesIn_.memoryBytes() + events_.memoryBytes() +
         controls_.memoryBytes() + (repair_.encoder ? repair_.encoder->memoryBytes() : 0) +
         (repair_.decoder ? repair_.decoder->memoryBytes() : 0);
}

}  // namespace gloo_bypass
