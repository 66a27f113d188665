#include "transport/datagram/datagram_transport.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/datagram/datagram_session.h"
#include "transport/datagram/sealed_batch.h"
#include "transport/sessions/channel_keys.h"
#include "transport/sessions/credentials.h"
#include "transport/sessions/session_table.h"

namespace gloo_bypass {
namespace {

constexpr auto kTickInterval = std::chrono::milliseconds(1);
// A full port does not report when it has room again. Copying a frame out of a memory link takes microseconds: try this
// often while polling...
constexpr auto kRetryFullPort = std::chrono::microseconds(3);
// ...and this often while asleep; rarely if the port wakes us for room.
constexpr auto kRetryFullPortAsleep = std::chrono::microseconds(50);
constexpr auto kRetryWakingPort = std::chrono::milliseconds(2);
// Share of the round trip that arrived data may wait for more; a shorter time is not worth a sleep.
constexpr int kPatienceShare = 100;
constexpr auto kLeastPatience = std::chrono::microseconds(50);
constexpr Duration kMostPatience = std::chrono::milliseconds(1);
constexpr std::size_t kFewDatagrams = 4;

// Of a transport that seals.
struct Sealing {
  SealedBatch batch;
  // The datagram that is being handed up, opened.
  const std::unique_ptr<std::byte[]> plain = std::make_unique_for_overwrite<std::byte[]>(wire::kMaxDatagramBytes);
};

}  // namespace

class DatagramTransport final : public PolledTransport, private PacketSink {
 public:
  // `credentials`: null: nothing is sealed.
  DatagramTransport(const TransportConfig& config, std::unique_ptr<PacketPort> port,
                    std::shared_ptr<const security::Credentials> credentials)
      : config_(config),
        credentials_(std::move(credentials)),
        port_(std::move(port)),
        description_(port_->describe()),
        traits_(port_->traits()),
        retryAsleep_(traits_.wakesForRoom ? Duration(kRetryWakingPort) : Duration(kRetryFullPortAsleep)) {
    if (credentials_ != nullptr) sealing_.emplace();
  }

  ~DatagramTransport() override { drainAndStop(sessions_); }

  void closeAll() override {
    sessions_.closeAll(progress());
    progress().exclusive([this] { port_->finishCapture(); });
  }

  bool reaches(std::span<const std::byte> portAddress) const override { return port_->reaches(portAddress); }
  int doorbell() const override { return traits_.doorbell; }
  void sleepElsewhere(bool elsewhere) override { port_->sleepElsewhere(elsewhere); }
  Duration longestSleep() const override { return port_->longestSleep(); }
  std::string describe() const override { return description_; }

  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override;

  TransportReport report() const override {
    const PortCounters p = port_->counters();
    TransportReport report{.description = description_,
                           .total = {},
                           .bytesSent = p.bytesSent,
                           .bytesReceived = p.bytesReceived,
                           .port = portFigures(p),
                           .channels = {},
                           .roundTrips = std::nullopt,
                           .operations = std::nullopt};
    sessions_.report(&report);
    if (measuresLatencies(config_)) report.roundTrips = rtts_;
    return report;
  }

 private:
  std::vector<PortFigure> portFigures(const PortCounters& p) const {
    return {
        {"packets_sent", "port_packets_sent_total", "Packets the port has sent", p.packetsSent},
        {"packets_received", "port_packets_received_total", "Packets the port has received", p.packetsReceived},
        {"bytes_sent", nullptr, nullptr, p.bytesSent},
        {"bytes_received", nullptr, nullptr, p.bytesReceived},
        {"transmit_full", "port_transmit_full_total", "Times the port took no packet: sent later", p.transmitFull},
        {"dropped_malformed", "port_dropped_malformed_total", "Packets dropped: not well-formed", p.droppedMalformed},
        {"dropped_foreign", "port_dropped_foreign_total", "Packets dropped: for somebody else", p.droppedForeign},
        {"dropped_no_buffer", "port_dropped_no_buffer_total",
         "Packets dropped: no buffer was free, or, over UDP, for somebody else", p.droppedNoBuffer},
        {"capture_frames", "port_capture_frames_total", "Frames in the port's capture", p.captureFrames},
        {"capture_bytes", "port_capture_bytes_total", "Bytes of these frames, as they were", p.captureBytes},
        {"capture_lost", "port_capture_lost_total", "Frames that the capture lacks: the disk was too slow or full",
         p.captureLost},
        {"dropped_not_ours", "port_dropped_not_ours_total", "Datagrams dropped: not of this protocol", droppedNotOurs_},
        {"dropped_unknown_session", "port_dropped_unknown_session_total", "Datagrams dropped: of no session here",
         droppedUnknownSession_},
        {"dropped_unsealed", "port_dropped_unsealed_total",
         "Datagrams dropped: not sealed, where GLOO_BYPASS_SECURITY is encrypt", dropped(Verdict::kNotSealed)},
        {"dropped_forged", "port_dropped_forged_total", "Datagrams dropped: not sealed by the peer",
         dropped(Verdict::kForged)},
        {"dropped_replayed", "port_dropped_replayed_total", "Datagrams dropped: repeated, or too late to tell",
         dropped(Verdict::kReplayed)}};
  }

  // Pollable ------------------------------------------------------------------------------------

  bool poll(TimePoint now) noexcept override {
    if (now >= nextTick_) {
      nextTick_ = now + Duration(kTickInterval);
      port_->onTick(now);
      patience_ = leastPatience();
    }
    now_ = now;
    taken_ = 0;
    strangers_ = false;
    received_ = port_->receive(*this, traits_.receiveBurst);
    bool progressed = taken_ > 0;
    if (progressed) gap_ = now - std::exchange(lastArrival_, now);
    sessions_.fireTimers(now_);
    if (sessions_.anyDirty()) progressed |= pumpDirty(now_);
    return progressed;
  }

  void flush(TimePoint now) noexcept override {
    now_ = now;
    if (sessions_.anyDirty()) (void)pumpDirty(now);
  }

  TimePoint nextDeadline() const noexcept override {
    const TimePoint timers = sessions_.nextDeadline();
    return sessions_.anyDirty() ? std::min(timers, now_ + retryAsleep_) : timers;
  }

  bool disturbed() const noexcept override { return (received_ > 0 || strangers_) && taken_ == 0; }
  // On a fast path datagrams arrive in bursts, and a resting driver holds them up.
  Duration patience() const noexcept override {
    return received_ <= kFewDatagrams && gap_ >= patience_ / 2 ? patience_ : Duration{0};
  }
  void armWakeup() noexcept override {
    // The next poll must ask a full port once more, or it could miss the answer to our flag.
    for (ChannelSession* session : sessions_.dirtyList()) static_cast<DatagramSession*>(session)->transmitFrom = {};
    port_->armWakeup();
  }
  void disarmWakeup() noexcept override { port_->disarmWakeup(); }
  void block(Duration timeout) noexcept override { port_->block(timeout); }
  void wake() noexcept override { port_->wake(); }

  // PacketSink ----------------------------------------------------------------------------------

  // A thread that lost its core after it read the clock would take newer arrivals for older than they are and say so in
  // its echo; the peer would measure a round trip shorter than the path.
  void onArrivals() noexcept override { now_ = std::max(now_, monotonicNow()); }

  void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept override {
    const auto id = Session::receiverId(datagram);
    if (!id) {
      ++droppedNotOurs_;
      return;
    }
    DatagramSession* session = sessions_.find(*id);
    if (session == nullptr || (session->link && *session->link != link)) {
      ++droppedUnknownSession_;
      return;
    }
    const std::span<std::byte> plain =
        sealing_ ? std::span(sealing_->plain.get(), wire::kMaxDatagramBytes) : std::span<std::byte>();
    const Verdict verdict = session->handleDatagram(now_, link, datagram, plain);
    ++verdicts_[static_cast<std::size_t>(verdict)];
    if (verdict == Verdict::kOpened) ++taken_;
  }

  void onStranger() noexcept override { strangers_ = true; }

  void onLinkDown(LinkId link, const Error& error) noexcept override {
    for (auto& [id, session] : sessions_.all()) {
      if (session->link == link) session->onLinkDown(now_, error);
    }
  }

  void onDatagramTooLarge(LinkId link, std::size_t bytes) noexcept override {
    for (auto& [id, session] : sessions_.all()) {
      if (session->link != link) continue;
      session->core.suspectDatagramSize(now_, session->plainBytes(bytes));
      session->markDirty();
    }
  }

  bool sentBySession(LinkId link, std::span<const std::byte> datagram) const noexcept override {
    const auto id = Session::receiverId(datagram);
    return id && std::any_of(sessions_.all().begin(), sessions_.all().end(), [&](const auto& item) {
             return item.second->link == link && item.second->remoteId == *id;
           });
  }

  bool onPortUnreachable(LinkId link) noexcept override {
    if (!sealing_) return true;
    for (auto& [id, session] : sessions_.all()) {
      if (session->link == link) session->onPortUnreachable(now_);
    }
    return false;
  }

  // Sessions ------------------------------------------------------------------------------------

  SessionConfig sessionConfig(const ChannelOptions& options) const {
    SessionConfig config = config_.session;
    config.connectTimeout = connectTimeout(config_, options.connectTimeout);
    config.peerTimeout = peerTimeout(config_, options.silenceTimeout);
    return config;
  }

  // A hundredth of a round trip is small beside it. The nearest peer decides: the driver serves all.
  Duration leastPatience() const {
    if (!traits_.gathers) return Duration{0};
    Duration nearest = Duration::max();
    for (const auto& [id, session] : sessions_.all()) {
      const SessionState state = session->core.state();
      if (state == SessionState::kConnecting) return Duration{0};
      if (state == SessionState::kEstablished) nearest = std::min(nearest, session->core.path().minRtt);
    }
    if (nearest == Duration::max() || nearest / kPatienceShare < Duration(kLeastPatience)) return Duration{0};
    return std::min(nearest / kPatienceShare, kMostPatience);
  }

  // connect() was called, and several paths lead to the peer.
  void openRails(DatagramSession& lead, TimePoint now) {
    const std::size_t due = lead.takeRailsDue();
    for (std::size_t rail = 1; rail <= due; ++rail) {
      DatagramSession& session = sessions_.add(std::make_unique<DatagramSession>(
          lead, sessions_.dirtyList(), sessionConfig(lead.options()), rail, sessions_.drawId(), channelsOpened_++));
      if (measuresLatencies(config_)) session.core.recordRttIn(&rtts_);
      session.connectRail(now, rail);
    }
  }

  // Lets each dirty session send and report. Observers may post more, to any session.
  bool pumpDirty(TimePoint now) {
    const auto turn = [&](DatagramSession& session) {
      if (session.opensLinkAgainAt() <= now) {
        left_.push_back(*session.link);
        session.openLinkAgain();
      }
      openRails(session, now);
      bool progressed = session.tellEvents();
      const bool more = transmitSome(session, now, &progressed);
      progressed |= session.tellEvents();
      session.wakeOthers();
      // Without a link nothing due can leave.
      session.nextTurn = session.canTransmit() ? session.core.pollTimeout() : session.opensLinkAgainAt();
      if (more) {
        // A session that is overdue because the port is full is no reason to stay awake.
        session.nextTurn = std::max(session.nextTurn, now + retryAsleep_);
        session.markDirty();
      }
      return progressed;
    };
    const auto retired = [this](DatagramSession& session) {
      if (session.link) left_.push_back(*session.link);
    };
    const bool progressed = sessions_.pump(turn, retired);
    port_->wakePeers();
    if (sealing_) sealing_->batch.clear();
    if (!left_.empty()) closeUnusedLinks();  // after the last data has left
    return progressed;
  }

  // A link ends with the last session on it: it holds descriptors, shared memory and one of the port's link slots.
  void closeUnusedLinks() {
    std::sort(left_.begin(), left_.end());
    left_.erase(std::unique(left_.begin(), left_.end()), left_.end());
    for (const LinkId link : left_) {
      const auto uses = [link](const auto& item) { return item.second->link == link; };
      if (std::none_of(sessions_.all().begin(), sessions_.all().end(), uses)) port_->closeLink(link);
    }
    left_.clear();
  }

  // True: the port was full or the quantum is used up; call again.
  bool transmitSome(DatagramSession& session, TimePoint now, bool* progressed) {
    if (!session.canTransmit()) return false;
    if (now < session.transmitFrom) return true;
    SessionDatagram datagram;
    for (std::size_t i = 0; i < session.transmitBurst(); ++i) {
      if (!session.core.pollTransmit(now, &datagram)) return false;
      OutgoingDatagram outgoing{datagram.header, datagram.payload, datagram.lasting};
      if (session.seals() && !seal(session, datagram, &outgoing)) return false;
      if (port_->transmit(*session.link, std::span(&outgoing, 1)) == 0) {
        session.undoTransmit();
        if (session.seals()) sealing_->batch.removeLast(outgoing.payload.size());
        session.transmitFrom = now + Duration(kRetryFullPort);
        return true;
      }
      *progressed = true;
    }
    return true;
  }

  // `outgoing` becomes the sealed datagram. False: the session has failed.
  bool seal(DatagramSession& session, const SessionDatagram& datagram, OutgoingDatagram* outgoing) {
    SealedBatch& batch = sealing_->batch;
    const std::size_t plainBytes = datagram.header.size() + datagram.payload.size();
    if (batch.room() < plainBytes + security::PacketProtection::kOverheadBytes) {
      port_->wakePeers();
      batch.clear();
    }
    std::byte* const begin = batch.end();
    const std::size_t length = session.seal(datagram, begin);
    *outgoing = {.header = {}, .payload = {begin, length}, .lent = true};
    batch.append(length);
    return length > 0;
  }

  using Verdict = DatagramSession::Verdict;
  std::uint64_t dropped(Verdict verdict) const { return verdicts_[static_cast<std::size_t>(verdict)]; }

  const TransportConfig config_;
  const std::shared_ptr<const security::Credentials> credentials_;
  std::optional<Sealing> sealing_;
  std::array<std::uint64_t, 4> verdicts_{};  // by Verdict
  const std::unique_ptr<PacketPort> port_;
  const std::string description_;
  const PacketPortTraits traits_;
  const Duration retryAsleep_;
  SessionTable<DatagramSession> sessions_;
  std::vector<LinkId> left_;  // left by a session in this pump; others may still use them
  TimePoint now_{};
  TimePoint nextTick_{};
  Duration patience_{0};
  std::size_t received_ = 0, taken_ = 0;  // datagrams of the last poll, and those that a session took
  bool strangers_ = false;                // the port dropped some of the last poll
  TimePoint lastArrival_{};
  Duration gap_{0};  // before the last arrival
  DurationHistogram rtts_;
  std::uint64_t channelsOpened_ = 0;
  std::uint64_t droppedNotOurs_ = 0, droppedUnknownSession_ = 0;
};

Result<std::unique_ptr<MessageChannel>> DatagramTransport::openChannel(const ChannelOptions& options,
                                                                       ChannelObserver* observer) {
  const std::vector<std::byte> address = port_->localAddress();
  const std::uint64_t id = sessions_.drawId();
  auto agreement = makeKeyAgreement(credentials_, id, address, options);
  if (!agreement) return agreement.error();
  DatagramSession& session =
      sessions_.add(std::make_unique<DatagramSession>(*port_, sessions_.dirtyList(), sessionConfig(options), id,
                                                      sessions_.drawId(), channelsOpened_++, options, observer));
  if (measuresLatencies(config_)) session.core.recordRttIn(&rtts_);
  session.secure(std::move(agreement).value());
  return makeChannelHandle(session, address, session.offer());
}

Result<std::shared_ptr<Transport>> makeDatagramTransport(const TransportConfig& config,
                                                         std::unique_ptr<PacketPort> port) {
  auto credentials = loadCredentials(config);
  if (!credentials) return credentials.error();
  auto transport = std::make_shared<DatagramTransport>(config, std::move(port), std::move(credentials).value());
  transport->startEngine({.spin = config.spin, .engineCpu = config.engineCpu});
  return std::shared_ptr<Transport>(std::move(transport));
}

Result<std::unique_ptr<PolledTransport>> makePolledDatagramTransport(const TransportConfig& config,
                                                                     std::unique_ptr<PacketPort> port) {
  auto credentials = loadCredentials(config);
  if (!credentials) return credentials.error();
  return std::unique_ptr<PolledTransport>(
      std::make_unique<DatagramTransport>(config, std::move(port), std::move(credentials).value()));
}

}  // namespace gloo_bypass
