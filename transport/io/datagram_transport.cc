#include "transport/io/datagram_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

#include "transport/base/check.h"
#include "transport/core/channel_counters.h"
#include "transport/io/channel_address.h"
#include "transport/io/channel_counters.h"
#include "transport/io/json_text.h"
#include "transport/io/latency_json.h"
#include "transport/io/progress_engine.h"
#include "transport/io/session_entry.h"

namespace gloo_bypass {
namespace {

// Few, so that a memory link's buffers are still in the cache when they are copied out and used again.
constexpr std::size_t kReceiveBurst = 4;
// Datagrams of one session before the next session has its turn, and peers are woken.
constexpr int kTransmitQuantum = 16;
constexpr auto kTickInterval = std::chrono::milliseconds(1);
// A full port says nothing when it has room again. A frame takes microseconds to be copied out of a memory link: look
// this often while polling...
constexpr auto kRetryFullPort = std::chrono::microseconds(3);
// ...and this often while asleep; rarely where the port wakes us for room.
constexpr auto kRetryFullPortAsleep = std::chrono::microseconds(50);
constexpr auto kRetryWakingPort = std::chrono::milliseconds(2);
// At the end of the process: how long to wait for acknowledgements of what was sent.
constexpr auto kDrainTime = std::chrono::seconds(3);

ChannelState channelState(SessionState state) {
  switch (state) {
    case SessionState::kIdle:
      return ChannelState::kUnconnected;
    case SessionState::kConnecting:
      return ChannelState::kConnecting;
    case SessionState::kEstablished:
      return ChannelState::kConnected;
    case SessionState::kPeerClosed:
      return ChannelState::kPeerClosed;
    case SessionState::kFailed:
      return ChannelState::kFailed;
    case SessionState::kClosing:
    case SessionState::kClosed:
      return ChannelState::kClosed;
  }
  return ChannelState::kFailed;
}

}  // namespace

class DatagramTransport final : public Transport, private Pollable, private PacketSink {
 public:
  DatagramTransport(const TransportConfig& config, std::unique_ptr<PacketPort> port)
      : config_(config),
        port_(std::move(port)),
        description_(port_->describe()),
        lossless_(port_->lossless()),
        retryAsleep_(port_->wakesForRoom() ? Duration(kRetryWakingPort) : Duration(kRetryFullPortAsleep)),
        engine_(*this, ProgressOptions{.spin = config.spin, .engineCpu = config.engineCpu}) {}

  ~DatagramTransport() override { waitUntilDrained(); }

  void closeAll() override {
    engine_.exclusive([this] {
      for (auto& [id, entry] : entries_) {
        if (entry->closed) continue;
        entry->observer = nullptr;
        entry->session.close(monotonicNow(), false);
        markDirty(*entry);
      }
    });
    waitUntilDrained();
    engine_.exclusive([this] { port_->finishCapture(); });
  }

  ProgressEngine& progress() override { return engine_; }
  std::string describe() const override { return description_; }

  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override;

  std::string countersJson() const override {
    ChannelCounters sum = closedCounters_;
    nlohmann::json peers = nlohmann::json::array();
    for (const auto& [id, entry] : entries_) {
      const ChannelCounters c = entry->session.counters();
      sum += c;
      nlohmann::json peer = toJson(c);
      peer["channel"] = entry->number;
      peer["peer"] = entry->peer;
      peer["local_rank"] = entry->options.localRank;
      peer["peer_rank"] = entry->options.peerRank;
      peer["smoothed_rtt_us"] = static_cast<double>(c.smoothedRtt.count()) / 1e3;
      peer["min_rtt_us"] = static_cast<double>(c.minRtt.count()) / 1e3;
      peer["congestion_window_bytes"] = c.congestionWindowBytes;
      peers.push_back(std::move(peer));
    }
    const PortCounters p = port_->counters();
    nlohmann::json json = toJson(sum);
    json["port"] = {{"description", description_},
                    {"packets_sent", p.packetsSent},
                    {"packets_received", p.packetsReceived},
                    {"bytes_sent", p.bytesSent},
                    {"bytes_received", p.bytesReceived},
                    {"transmit_full", p.transmitFull},
                    {"dropped_malformed", p.droppedMalformed},
                    {"dropped_foreign", p.droppedForeign},
                    {"dropped_no_buffer", p.droppedNoBuffer},
                    {"capture_frames", p.captureFrames},
                    {"capture_bytes", p.captureBytes},
                    {"capture_lost", p.captureLost},
                    {"dropped_not_ours", droppedNotOurs_},
                    {"dropped_unknown_session", droppedUnknownSession_}};
    json["bytes_sent"] = p.bytesSent;
    json["bytes_received"] = p.bytesReceived;
    json["open_channels"] = std::move(peers);
    if (measuresLatencies(config_)) json["latencies"]["rtt"] = histogramJson(rtts_);
    return jsonText(json);
  }

 private:
  friend class DatagramChannel;

  void waitUntilDrained() {
    const auto drained = [this] {
      return std::all_of(entries_.begin(), entries_.end(), [](const auto& item) { return item.second->finished(); });
    };
    (void)engine_.waitUntil(drained, monotonicNow() + Duration(kDrainTime));
  }

  // Pollable ------------------------------------------------------------------------------------

  bool poll(TimePoint now) noexcept override {
    if (now >= nextTick_) {
      nextTick_ = now + Duration(kTickInterval);
      port_->onTick(now);
    }
    now_ = now;
    bool progressed = port_->receive(*this, kReceiveBurst) > 0;
    if (now_ >= nextDeadline_) fireTimers(now_);
    if (!dirty_.empty()) progressed |= pumpDirty(now_);
    return progressed;
  }

  void flush(TimePoint now) noexcept override {
    now_ = now;
    if (!dirty_.empty()) (void)pumpDirty(now);
  }

  TimePoint nextDeadline() const noexcept override {
    return dirty_.empty() ? nextDeadline_ : std::min(nextDeadline_, now_ + retryAsleep_);
  }

  void armWakeup() noexcept override {
    // The poll that follows must ask a full port once more, or its answer to our flag could be missed.
    for (SessionEntry* entry : dirty_) entry->transmitFrom = {};
    port_->armWakeup();
  }
  void disarmWakeup() noexcept override { port_->disarmWakeup(); }
  void block(Duration timeout) noexcept override { port_->block(timeout); }
  void wake() noexcept override { port_->wake(); }

  // PacketSink ----------------------------------------------------------------------------------

  void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept override {
    const auto id = Session::receiverId(datagram);
    if (!id) {
      ++droppedNotOurs_;
      return;
    }
    SessionEntry* entry = find(*id);
    if (entry == nullptr || (entry->link && *entry->link != link)) {
      ++droppedUnknownSession_;
      return;
    }
    // A thread that was kept from running since it read the clock would take what came meanwhile for older than it is, say so in its
    // echo, and the peer would find a round trip shorter than the path.
    if (!lossless_) now_ = std::max(now_, monotonicNow());
    entry->session.handleDatagram(now_, datagram);
    markDirty(*entry);
  }

  void onLinkDown(LinkId link, const Error& error) noexcept override {
    for (auto& [id, entry] : entries_) {
      if (entry->link != link) continue;
      Error named = error;
      named.message = fmt::format("{}: {}", entry->peer, error.message);
      entry->session.fail(named);
      entry->linkDown = true;
      markDirty(*entry);
    }
  }

  // Sessions ------------------------------------------------------------------------------------

  SessionEntry* find(std::uint64_t id) {
    if (lastFound_ != nullptr && lastFound_->localId == id) return lastFound_;
    const auto it = entries_.find(id);
    if (it == entries_.end()) return nullptr;
    lastFound_ = it->second.get();
    return lastFound_;
  }

  void markDirty(SessionEntry& entry) {
    if (entry.dirty) return;
    entry.dirty = true;
    dirty_.push_back(&entry);
  }

  void fireTimers(TimePoint now) {
    nextDeadline_ = kNever;
    for (auto& [id, entry] : entries_) {
      if (entry->deadline <= now) {
        entry->session.handleTimeout(now);
        markDirty(*entry);
      } else {
        nextDeadline_ = std::min(nextDeadline_, entry->deadline);
      }
    }
  }

  // Each dirty session: what it has to send, what it has to tell. Observers may post more, to any session.
  bool pumpDirty(TimePoint now) {
    bool progressed = false;
    pumping_.swap(dirty_);
    for (SessionEntry* entry : pumping_) {
      entry->dirty = false;
      progressed |= dispatchEvents(*entry);
      const bool more = transmitSome(*entry, now, &progressed);
      progressed |= dispatchEvents(*entry);
      entry->deadline = entry->session.pollTimeout();
      // What is overdue because the port took nothing is no reason to stay awake.
      if (more) entry->deadline = std::max(entry->deadline, now + retryAsleep_);
      nextDeadline_ = std::min(nextDeadline_, entry->deadline);
      if (more) markDirty(*entry);
      if (!entry->finished()) continue;
      progressed = true;  // for who waits until all are
      if (entry->closed && !entry->dirty) retire(*entry);
    }
    pumping_.clear();
    port_->wakePeers();
    return progressed;
  }

  // True: the port was full or the quantum is over, come again.
  bool transmitSome(SessionEntry& entry, TimePoint now, bool* progressed) {
    if (!entry.link || entry.linkDown) return false;
    if (now < entry.transmitFrom) return true;
    SessionDatagram datagram;
    for (int i = 0; i < kTransmitQuantum; ++i) {
      if (!entry.session.pollTransmit(now, &datagram)) return false;
      const OutgoingDatagram outgoing{datagram.header, datagram.payload};
      if (port_->transmit(*entry.link, std::span(&outgoing, 1)) == 0) {
        entry.session.undoTransmit(now);
        entry.transmitFrom = now + Duration(kRetryFullPort);
        return true;
      }
      *progressed = true;
    }
    return true;
  }

  bool dispatchEvents(SessionEntry& entry) {
    SessionEvent event;
    bool any = false;
    while (entry.session.pollEvent(&event)) {
      any = true;
      if (entry.observer == nullptr) continue;
      switch (event.type) {
        case SessionEvent::Type::kSendComplete:
          entry.observer->onSendComplete(event.token);
          break;
        case SessionEvent::Type::kReceiveComplete:
          entry.observer->onReceiveComplete(event.token, event.length);
          break;
        case SessionEvent::Type::kMessageAnnounced:
          entry.observer->onMessageAnnounced(event.key, event.length);
          break;
        case SessionEvent::Type::kStateChange:
          entry.observer->onStateChange(channelState(event.state));
          break;
      }
    }
    return any;
  }

  void retire(SessionEntry& entry) {
    closedCounters_ += entry.session.counters();
    if (lastFound_ == &entry) lastFound_ = nullptr;
    GLOO_BYPASS_CHECK(!entry.dirty);
    entries_.erase(entry.localId);
  }

  const TransportConfig config_;
  const std::unique_ptr<PacketPort> port_;
  const std::string description_;
  const bool lossless_;
  const Duration retryAsleep_;
  std::unordered_map<std::uint64_t, std::unique_ptr<SessionEntry>> entries_;
  SessionEntry* lastFound_ = nullptr;
  std::vector<SessionEntry*> dirty_, pumping_;
  TimePoint now_{};
  TimePoint nextTick_{};
  TimePoint nextDeadline_ = kNever;
  ChannelCounters closedCounters_;
  DurationHistogram rtts_;
  std::uint64_t channelsOpened_ = 0;
  std::uint64_t droppedNotOurs_ = 0, droppedUnknownSession_ = 0;
  std::random_device random_;
  ProgressEngine engine_;  // last: its thread uses all of the above
};

class DatagramChannel final : public MessageChannel {
 public:
  DatagramChannel(DatagramTransport& transport, SessionEntry& entry) : transport_(transport), entry_(&entry) {}
  ~DatagramChannel() override { DatagramChannel::close(false); }

  std::vector<std::byte> localAddress() const override {
    return encodeChannelAddress({.sessionId = entry_->localId,
                                 .portAddress = transport_.port_->localAddress(),
                                 .description = describeSelf(entry_->options.localRank)});
  }

  Status connect(std::span<const std::byte> remoteAddress) override {
    if (entry_ == nullptr || entry_->session.state() != SessionState::kIdle) {
      return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, "connect: already called, or closed");
    }
    auto address = decodeChannelAddress(remoteAddress);
    if (!address) return address.error();
    if (address.value().sessionId == entry_->localId) {
      return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, "cannot connect to self");
    }
    entry_->peer = address.value().description;
    const auto link = transport_.port_->openLink(address.value().portAddress);
    if (!link) return link.error();
    entry_->link = link.value();
    const LinkProperties properties = transport_.port_->linkProperties(link.value());
    entry_->session.connect(monotonicNow(), address.value().sessionId, properties.maxDatagramBytes);
    transport_.markDirty(*entry_);
    return {};
  }

  Status postSend(const SendRequest& request) override {
    if (entry_ == nullptr) return closedStatus();
    transport_.markDirty(*entry_);
    return entry_->session.postSend(monotonicNow(), request);
  }

  Status postReceive(const ReceiveRequest& request) override {
    if (entry_ == nullptr) return closedStatus();
    transport_.markDirty(*entry_);
    return entry_->session.postReceive(monotonicNow(), request);
  }

  bool cancelSend(OperationToken token) override {
    if (entry_ == nullptr) return false;
    transport_.markDirty(*entry_);
    return entry_->session.cancelSend(monotonicNow(), token);
  }

  bool cancelReceive(OperationToken token) override {
    if (entry_ == nullptr) return false;
    transport_.markDirty(*entry_);
    return entry_->session.cancelReceive(monotonicNow(), token);
  }

  ChannelState state() const override {
    return entry_ == nullptr ? ChannelState::kClosed : channelState(entry_->session.state());
  }
  const Error& error() const override {
    GLOO_BYPASS_CHECK(entry_ != nullptr);
    return entry_->session.error();
  }
  std::string describePeer() const override {
    return entry_ == nullptr || entry_->peer.empty() ? "(not connected)" : entry_->peer;
  }
  ChannelCounters counters() const override {
    return entry_ == nullptr ? ChannelCounters{} : entry_->session.counters();
  }

  void close(bool abort) override {
    if (entry_ == nullptr) return;
    SessionEntry& entry = *std::exchange(entry_, nullptr);
    entry.observer = nullptr;
    entry.closed = true;
    entry.session.close(monotonicNow(), abort);
    transport_.markDirty(entry);
  }

 private:
  static Status closedStatus() {
    return Status(ErrorScope::kSession, ErrorCode::kInvalidArgument, "the channel has been closed");
  }

  DatagramTransport& transport_;
  SessionEntry* entry_;
};

Result<std::unique_ptr<MessageChannel>> DatagramTransport::openChannel(const ChannelOptions& options,
                                                                       ChannelObserver* observer) {
  const auto draw = [this] { return (static_cast<std::uint64_t>(random_()) << 32) | random_(); };
  std::uint64_t id = draw();
  while (id == 0 || entries_.contains(id)) id = draw();
  SessionConfig sessionConfig = config_.session;
  sessionConfig.connectTimeout = options.connectTimeout;
  sessionConfig.losslessLink = port_->lossless();
  auto entry = std::make_unique<SessionEntry>(sessionConfig, id, draw(), options, channelsOpened_++);
  if (measuresLatencies(config_)) entry->session.recordRttIn(&rtts_);
  entry->observer = observer;
  SessionEntry& reference = *entry;
  entries_.emplace(id, std::move(entry));
  return std::unique_ptr<MessageChannel>(std::make_unique<DatagramChannel>(*this, reference));
}

std::shared_ptr<Transport> makeDatagramTransport(const TransportConfig& config, std::unique_ptr<PacketPort> port) {
  return std::make_shared<DatagramTransport>(config, std::move(port));
}

}  // namespace gloo_bypass
