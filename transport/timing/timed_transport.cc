#include "transport/timing/timed_transport.h"

#include <array>
#include <map>
#include <string>
#include <utility>

#include "transport/base/duration_histogram.h"
#include "transport/base/flat_map.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

struct SizeClass {
  std::size_t upTo;  // bytes, inclusive
  const char* name;
};
// 32 KiB is where rendezvous begins by default, 1 MiB the segment of Gloo's ring.
constexpr std::array<SizeClass, 4> kSizeClasses{{{std::size_t{1} << 10, "up_to_1KiB"},
                                                 {std::size_t{32} << 10, "up_to_32KiB"},
                                                 {std::size_t{1} << 20, "up_to_1MiB"},
                                                 {SIZE_MAX, "larger"}}};

struct PeerTimes {
  DurationHistogram send, receive;
};

class Times {
 public:
  void addSend(PeerTimes* peer, std::size_t length, Duration duration) {
    send_[classOf(length)].add(duration);
    if (peer != nullptr) peer->send.add(duration);
  }
  void addReceive(PeerTimes* peer, std::size_t length, Duration duration) {
    receive_[classOf(length)].add(duration);
    if (peer != nullptr) peer->receive.add(duration);
  }
  void addConnect(Duration duration) { connect_.add(duration); }

  // Null: too many peers already. The address stays valid.
  PeerTimes* peer(const std::string& name) {
    const auto found = peers_.find(name);
    if (found != peers_.end()) return &found->second;
    return peers_.size() < kMaxTimedPeers ? &peers_[name] : nullptr;
  }

  OperationTimes report() const {
    OperationTimes times;
    for (std::size_t i = 0; i < kSizeClasses.size(); ++i) {
      times.sizes.push_back({kSizeClasses[i].name, send_[i], receive_[i]});
    }
    for (const auto& [name, peer] : peers_) times.peers.push_back({name, peer.send, peer.receive});
    times.connect = connect_;
    return times;
  }

 private:
  static std::size_t classOf(std::size_t length) {
    std::size_t i = 0;
    while (length > kSizeClasses[i].upTo) ++i;
    return i;
  }

  std::array<DurationHistogram, kSizeClasses.size()> send_, receive_;
  DurationHistogram connect_;
  std::map<std::string, PeerTimes> peers_;
};

// Stands between the back-end and the adapter, in both directions.
class TimedChannel final : public MessageChannel, private ChannelObserver {
 public:
  TimedChannel(std::shared_ptr<Times> times, ChannelObserver* observer)
      : times_(std::move(times)), observer_(observer) {}
  ~TimedChannel() override { TimedChannel::close(false); }

  ChannelObserver* asObserver() { return this; }
  void setInner(std::unique_ptr<MessageChannel> inner) { inner_ = std::move(inner); }

  std::vector<std::byte> localAddress() const override { return inner_->localAddress(); }
  Status connect(std::span<const std::byte> remoteAddress) override {
    connectBegan_ = monotonicNow();
    return inner_->connect(remoteAddress);
  }

  // Remember first: the send may complete before the call returns.
  Status postSend(const SendRequest& request) override {
    sends_.at(request.token) = {monotonicNow(), request.length};
    Status status = inner_->postSend(request);
    if (!status) sends_.erase(request.token);
    return status;
  }
  Status postReceive(const ReceiveRequest& request) override {
    if (request.persistent) return inner_->postReceive(request);
    receives_.at(request.token) = monotonicNow();
    Status status = inner_->postReceive(request);
    if (!status) receives_.erase(request.token);
    return status;
  }
  bool cancelSend(OperationToken token) override {
    sends_.erase(token);
    return inner_->cancelSend(token);
  }
  bool cancelReceive(OperationToken token) override {
    receives_.erase(token);
    return inner_->cancelReceive(token);
  }
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override { return inner_->oldestUnmatched(key); }

  ChannelState state() const override { return inner_->state(); }
  const Error& error() const override { return inner_->error(); }
  std::string describePeer() const override { return inner_->describePeer(); }
  ChannelCounters counters() const override { return inner_->counters(); }
  void close(bool abort) override {
    if (inner_ == nullptr) return;
    inner_->close(abort);
    forgetAll();
  }

 private:
  struct Sending {
    TimePoint since{};
    std::size_t length = 0;
  };

  void onSendComplete(OperationToken token) noexcept override {
    if (const Sending* sending = sends_.find(token)) {
      times_->addSend(peer_, sending->length, monotonicNow() - sending->since);
      sends_.erase(token);
    }
    observer_->onSendComplete(token);
  }
  void onReceiveComplete(OperationToken token, std::size_t length) noexcept override {
    if (const TimePoint* since = receives_.find(token)) {
      times_->addReceive(peer_, length, monotonicNow() - *since);
      receives_.erase(token);
    }
    observer_->onReceiveComplete(token, length);
  }
  void onMessageAnnounced(MessageKey key, std::size_t length) noexcept override {
    observer_->onMessageAnnounced(key, length);
  }
  void onStateChange(ChannelState state) noexcept override {
    if (state == ChannelState::kConnected) {
      times_->addConnect(monotonicNow() - connectBegan_);
      peer_ = times_->peer(inner_->describePeer());
    } else if (state == ChannelState::kPeerClosed || state == ChannelState::kFailed) {
      forgetAll();  // as the back-end has
    }
    observer_->onStateChange(state);
  }
  void forgetAll() {
    sends_.clear();
    receives_.clear();
  }

  const std::shared_ptr<Times> times_;
  ChannelObserver* const observer_;
  std::unique_ptr<MessageChannel> inner_;
  TimePoint connectBegan_{};
  PeerTimes* peer_ = nullptr;
  FlatMap<OperationToken, Sending> sends_;
  FlatMap<OperationToken, TimePoint> receives_;
};

class TimedTransport final : public Transport {
 public:
  explicit TimedTransport(std::shared_ptr<Transport> inner)
      : times_(std::make_shared<Times>()), inner_(std::move(inner)) {}

  ProgressEngine& progress() override { return inner_->progress(); }
  std::string describe() const override { return inner_->describe(); }
  void closeAll() override { inner_->closeAll(); }

  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override {
    auto channel = std::make_unique<TimedChannel>(times_, observer);
    auto inner = inner_->openChannel(options, channel->asObserver());
    if (!inner) return inner.error();
    channel->setInner(std::move(inner).value());
    return std::unique_ptr<MessageChannel>(std::move(channel));
  }

  TransportReport report() const override {
    TransportReport report = inner_->report();
    report.operations = times_->report();
    return report;
  }

 private:
  const std::shared_ptr<Times> times_;  // shared with the channels
  const std::shared_ptr<Transport> inner_;
};

}  // namespace

std::shared_ptr<Transport> makeTimedTransport(std::shared_ptr<Transport> inner) {
  return std::make_shared<TimedTransport>(std::move(inner));
}

}  // namespace gloo_bypass
