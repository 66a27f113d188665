#include "transport/datagram/datagram_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include "transport/base/check.h"
#include "transport/core/channel_state.h"
#include "transport/sessions/channel_keys.h"
#include "transport/wire/rail_id.h"

namespace gloo_bypass {
namespace {

// Ranks that start together connect within a second or two.
constexpr auto kSilenceWorthALine = std::chrono::seconds(10);
// A sealed Hello is shorter.
constexpr std::size_t kMostEarlyBytes = 256;
// A link may end once or twice on behalf of an earlier session. Each further attempt waits longer: a link may cost
// megabytes.
constexpr Duration kShortestPause = std::chrono::milliseconds(1), kLongestPause = std::chrono::milliseconds(250);

}  // namespace

DatagramSession::DatagramSession(DatagramSession& lead, DirtyList& dirtyList, const SessionConfig& config,
                                 std::size_t rail, std::uint64_t entropy, std::uint64_t number)
    : ChannelSession(dirtyList, wire::railId(lead.id_, rail), number, lead.options_, nullptr),
      core(config, id_, entropy, &lead.core),
      port_(lead.port_),
      lead_(&lead),
      rail_(rail) {
  peerName_ = lead.peerName_;
  lead.rails_.push_back(this);
  abandon();
}

DatagramSession::~DatagramSession() {
  if (lead_ != nullptr) std::erase(lead_->rails_, this);
  for (DatagramSession* rail : rails_) {
    rail->lead_ = nullptr;
    rail->markDirty();
  }
}

void DatagramSession::enter(Stage next) {
  const auto follows = [this, next] {
    switch (next) {
      case Stage::kUnlinked:
        return false;
      case Stage::kConnecting:
        return stage_ == Stage::kUnlinked || stage_ == Stage::kLinkLost;
      case Stage::kLinkLost:
      case Stage::kAwaitingRails:
        return stage_ == Stage::kConnecting;
      case Stage::kConnected:
        return stage_ == Stage::kConnecting || stage_ == Stage::kAwaitingRails;
      case Stage::kLinkDown:
        return stage_ != Stage::kLinkDown;
    }
    return false;
  };
  GLOO_BYPASS_CHECK(follows());
  stage_ = next;
}

Status DatagramSession::connect(TimePoint now, const ChannelAddress& peer) {
  peerName_ = peer.description;
  if (const Status agreed = agreeOnKeys(agreement_.get(), peer); !agreed) return agreed;
  const auto opened = port_.openLink(peer.portAddress);
  if (!opened) return opened.error();
  railsDue_ = port_.rails(peer.portAddress) - 1;
  useLink(now, opened.value(), peer.portAddress, peer.sessionId);
  takeEarly(now);
  return {};
}

void DatagramSession::connectRail(TimePoint now, std::size_t rail) {
  const auto opened = port_.openRail(lead_->peerPort_, rail);
  if (!opened) return failLink(opened.error());
  useLink(now, opened.value(), lead_->peerPort_, wire::railId(lead_->remoteId, rail));
}

void DatagramSession::useLink(TimePoint now, LinkId opened, const std::vector<std::byte>& peerPort,
                              std::uint64_t remote) {
  enter(Stage::kConnecting);
  link = opened;
  peerPort_ = peerPort;
  remoteId = remote;
  properties_ = port_.linkProperties(*link);
  connectingSince_ = now;
  if (properties_.lossless) core.markLossless();
  if (properties_.verified) core.markVerified();
  if (!protect()) return;
  core.connect(now, remoteId, plainBytes(properties_.maxDatagramBytes), plainBytes(properties_.firstDatagramBytes));
}

// Before the core's connect(). False: the link's datagrams are too small to be sealed, and the session has failed.
bool DatagramSession::protect() {
  const security::KeyAgreement* const agreed = agreement();
  if (agreed == nullptr || properties_.exempt) return true;
  protection_ = std::make_unique<security::PacketProtection>(
      agreed->trafficSecret(agreed->ownId(), rail_), agreed->trafficSecret(agreed->peerId(), rail_),
      agreed->ownId() < agreed->peerId() ? security::KeyChanges::kBegins : security::KeyChanges::kFollows);
  core.markSealed();
  if (plainBytes(properties_.maxDatagramBytes) >= wire::kMinDatagramBytes) return true;
  failLink({ErrorScope::kSession, ErrorCode::kConfiguration,
            fmt::format("GLOO_BYPASS_SECURITY='encrypt' needs datagrams of {} bytes, and the way carries {}: raise the "
                        "interface's MTU",
                        wire::kMinDatagramBytes + security::PacketProtection::kOverheadBytes,
                        properties_.maxDatagramBytes)});
  return false;
}

std::size_t DatagramSession::seal(const SessionDatagram& datagram, std::byte* out) {
  const std::size_t length = protection_->seal(datagram.header, datagram.payload, out);
  if (length == 0) failSpent();
  return length;
}

void DatagramSession::failSpent() {
  core.fail(
      {ErrorScope::kSession, ErrorCode::kUnavailable,
       "the keys of this connection are used up (GLOO_BYPASS_SECURITY='encrypt'): too many datagrams arrived that the "
       "peer did not seal, or it answered none of millions; start the ranks again"});
  markDirty();
}

DatagramSession::Verdict DatagramSession::handleDatagram(TimePoint now, LinkId from,
                                                         std::span<const std::byte> datagram,
                                                         std::span<std::byte> plain) {
  if (protection_ != nullptr) {
    const bool wasSpent = protection_->spent();
    const Verdict verdict = protection_->open(datagram, plain.data());
    if (verdict == Verdict::kOpened) {
      takePlain(now, plain.first(plainBytes(datagram.size())));
    } else if (!wasSpent && protection_->spent()) {
      failSpent();
    }
    return verdict;
  }
  if (agreement_ != nullptr && stage_ == Stage::kUnlinked) {
    if (datagram.size() <= kMostEarlyBytes) early_ = Early{from, {datagram.begin(), datagram.end()}};
    return Verdict::kOpened;
  }
  // In the clear only where it is meant to be.
  if (agreement() != nullptr && !(link && properties_.exempt)) return Verdict::kNotSealed;
  takePlain(now, datagram);
  return Verdict::kOpened;
}

void DatagramSession::takeEarly(TimePoint now) {
  const auto early = std::exchange(early_, std::nullopt);
  if (!early || early->link != *link || stage_ != Stage::kConnecting) return;
  std::array<std::byte, kMostEarlyBytes> plain;
  (void)handleDatagram(now, early->link, early->bytes, plain);
}

void DatagramSession::takePlain(TimePoint now, std::span<const std::byte> datagram) {
  const DatagramSession* const unmet = stage_ == Stage::kConnected ? nullptr : connectingPath();
  const bool wasFailed = core.state() == SessionState::kFailed;
  core.handleDatagram(now, datagram);
  markDirty();
  if (lead_ != nullptr) lead_->markDirty();
  if (unmet == nullptr || wasFailed || core.state() != SessionState::kFailed) return;
  // The peer timed out first.
  if (core.error().code == ErrorCode::kTimedOut) core.explainFailure(unmet->whyNothingArrives());
}

// The first of this session's paths that is not connected, if loss on its link can be the reason.
const DatagramSession* DatagramSession::connectingPath() const {
  const auto connects = [](const DatagramSession& session) {
    return !session.properties_.lossless && session.core.state() == SessionState::kConnecting;
  };
  if (connects(*this)) return this;
  const auto rail = std::find_if(rails_.begin(), rails_.end(), [&](const auto* one) { return connects(*one); });
  return rail == rails_.end() ? nullptr : *rail;
}

void DatagramSession::wakeOthers() {
  if (lead_ != nullptr && lead_->core.toTell()) lead_->markDirty();
  if (rails_.empty()) return;
  const bool ending = core.state() != SessionState::kConnecting && core.state() != SessionState::kEstablished;
  if (!ending && !core.hasParts()) return;
  for (DatagramSession* rail : rails_) rail->markDirty();
}

// A session that has ended since awaits nothing.
bool DatagramSession::awaitsRails() const {
  return stage_ == Stage::kAwaitingRails && core.state() == SessionState::kEstablished;
}

bool DatagramSession::railsMet() const {
  return railsDue_ == 0 && std::all_of(rails_.begin(), rails_.end(), [](const auto* rail) { return rail->met(); });
}

// The peer's first datagram shows that packets arrive; its answer to ours shows that they leave too.
std::string DatagramSession::whatIsBlocked() const {
  return fmt::format(
      "{} ({}). Firewalls must let UDP through both ways: 'gloo-bypass-doctor --listen' on the peer's host "
      "and 'gloo-bypass-doctor --probe ADDRESS' on this one say which way is blocked; 'python3 -m gloo_bypass' has "
      "both, "
      "too",
      core.peerHeard() ? "its packets arrive here, but there is no answer to ours" : "nothing has arrived from it",
      port_.describeLink(*link));
}

// A cause on this host, if the port knows one.
std::string DatagramSession::whyNothingArrives() const {
  std::string trouble = port_.trouble(*link);
  return trouble.empty() ? whatIsBlocked() : trouble;
}

void DatagramSession::handleTimeout(TimePoint now) {
  const SessionState before = core.state();
  core.handleTimeout(now);
  if (before == SessionState::kConnecting && core.state() == before) return warnOfSilence(now);
  if (before == SessionState::kFailed || core.state() != SessionState::kFailed) return;
  const bool unmet = before == SessionState::kConnecting && !properties_.lossless;
  const std::string why =
      unmet && core.error().code == ErrorCode::kTimedOut ? whyNothingArrives() : port_.trouble(*link);
  if (!why.empty()) core.explainFailure(why);
}

// Once a process: ranks wait for each other, and one late rank holds up many.
void DatagramSession::warnOfSilence(TimePoint now) const {
  static std::atomic<bool> said{false};
  if (properties_.lossless || now - connectingSince_ < kSilenceWorthALine || said.exchange(true)) return;
  std::fprintf(stderr,
               "gloo-bypass: rank %d waits for %s, %d s so far; it may be waiting for another rank. If not: %s\n",
               options().localRank, peerName_.c_str(), static_cast<int>(kSilenceWorthALine.count()),
               whyNothingArrives().c_str());
}

ChannelState DatagramSession::state() const {
  return awaitsRails() ? ChannelState::kConnecting : channelState(core.state());
}

bool DatagramSession::finished() const {
  const SessionState state = core.state();
  return core.drained() ||
         (stage_ == Stage::kLinkDown && (state == SessionState::kClosed || state == SessionState::kFailed));
}

// A peer closes a link that no session of its own uses. If one of ours is just connecting on it, the peer's session has
// not connected yet and will use the next link; ours can only have sent a Hello, which it repeats.
void DatagramSession::onLinkDown(TimePoint now, const Error& error) {
  if (!canTransmit()) return;  // it had ended before
  const SessionState state = core.state();
  const bool connects = state == SessionState::kConnecting || (state == SessionState::kClosing && !met());
  if (error.code != ErrorCode::kPeerClosed || !connects) return failLink(error);
  enter(Stage::kLinkLost);
  opensAgainAt_ = now + nextPause_;
  nextPause_ = std::clamp<Duration>(2 * nextPause_, kShortestPause, kLongestPause);
  markDirty();
}

void DatagramSession::onPortUnreachable(TimePoint now) {
  if (core.onPortUnreachable(now)) {
    core.fail(
        {ErrorScope::kSession, ErrorCode::kPeerVanished,
         fmt::format("{}: its machine says that the port is closed, and it does not answer: the process ended, or "
                     "was killed",
                     peerName_)},
        /*tellPeer=*/true);
  }
  markDirty();
}

void DatagramSession::openLinkAgain() {
  const auto opened = port_.openLink(peerPort_);
  if (!opened) return failLink(opened.error());
  enter(Stage::kConnecting);
  link = opened.value();
  const LinkProperties begunWith = std::exchange(properties_, port_.linkProperties(*link));
  // The session's settings and its Hello depend on the properties of the link that it began with.
  if (properties_.lossless != begunWith.lossless || properties_.verified != begunWith.verified ||
      properties_.exempt != begunWith.exempt || properties_.maxDatagramBytes < begunWith.maxDatagramBytes) {
    failLink({ErrorScope::kSession, ErrorCode::kUnavailable,
              "the peer closed the link, and the next one is of another kind"});
  }
}

void DatagramSession::failLink(const Error& error) {
  Error named = error;
  named.message = fmt::format("{}: {}", peerName_, error.message);
  core.fail(named);
  enter(Stage::kLinkDown);
  markDirty();
}

bool DatagramSession::tellEvents() {
  SessionEvent event;
  bool any = false;
  // Reported last: an observer that learns of a message may receive it, and that receive must complete first.
  std::optional<SessionState> end;
  while (core.pollEvent(&event)) {
    any = true;
    if (event.type == SessionEvent::Type::kStateChange) {
      onStateChange(event.state);
      if (event.state != SessionState::kEstablished) end = event.state;
    }
    if (observer_ == nullptr) continue;
    switch (event.type) {
      case SessionEvent::Type::kSendComplete:
        observer_->onSendComplete(event.token);
        break;
      case SessionEvent::Type::kReceiveComplete:
        observer_->onReceiveComplete(event.token, event.length);
        break;
      case SessionEvent::Type::kMessageAnnounced:
        observer_->onMessageAnnounced(event.key, event.length);
        break;
      case SessionEvent::Type::kStateChange:
        break;
    }
  }
  if (!end && awaitsRails() && railsMet()) {
    any = true;
    tellConnected();
  }
  if (end && observer_ != nullptr) tellEnd(*end);
  return any;
}

void DatagramSession::onStateChange(SessionState state) {
  if (state == SessionState::kEstablished) {
    if (railsMet()) {
      tellConnected();
    } else if (stage_ == Stage::kConnecting) {
      enter(Stage::kAwaitingRails);
    }
  }
  if (lead_ == nullptr) return;
  if (core.state() == SessionState::kFailed) failLead();
  lead_->markDirty();
}

void DatagramSession::tellConnected() {
  // Its link may be gone already: then tellEnd() follows.
  if (stage_ == Stage::kConnecting || stage_ == Stage::kAwaitingRails) enter(Stage::kConnected);
  if (observer_ != nullptr) observer_->onStateChange(ChannelState::kConnected);
}

void DatagramSession::tellEnd(SessionState state) {
  port_.wakePeers();  // whoever hears of an end takes buffers back that the port was lent in this turn
  // A peer that closed in good order had met all of our rails.
  if (state == SessionState::kPeerClosed && stage_ == Stage::kAwaitingRails) tellConnected();
  if (observer_ != nullptr) observer_->onStateChange(channelState(state));
}

void DatagramSession::failLead() {
  Error error = core.error();
  const std::string path = link ? port_.describeLink(*link) : "";
  if (error.message.find(path) == std::string::npos) error.message += fmt::format(" ({})", path);
  lead_->core.fail(error, /*tellPeer=*/true);
}

}  // namespace gloo_bypass
