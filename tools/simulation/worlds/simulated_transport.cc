#include "tools/simulation/worlds/simulated_transport.h"

#include <cstdlib>

#include "transport/base/check.h"
#include "transport/core/channel_state.h"

namespace gloo_bypass::sim {
namespace {

class SimulatedChannel final : public MessageChannel {
 public:
  SimulatedChannel(Simulation& simulation, Host& host, ChannelObserver* observer, std::function<void()> afterEvents)
      : simulation_(simulation), host_(host), observer_(observer), afterEvents_(std::move(afterEvents)) {
    host_.setObserver([this](const SessionEvent& event) { onEvent(event); });
  }
  ~SimulatedChannel() override {
    close(false);
    *alive_ = false;
    host_.setObserver({});
  }

  std::vector<std::byte> localAddress() const override { return {}; }
  Status connect(std::span<const std::byte>) override { return {}; }
  Status postSend(const SendRequest& request) override {
    return post([request](Session& session) { return session.postSend(request); });
  }
  Status postReceive(const ReceiveRequest& request) override {
    return post([request](Session& session) { return session.postReceive(request); });
  }
  bool cancelSend(OperationToken token) override {
    return cancel([token](Session& session) { return session.cancelSend(token); });
  }
  bool cancelReceive(OperationToken token) override {
    return cancel([token](Session& session) { return session.cancelReceive(token); });
  }
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override {
    return host_.session().oldestUnmatched(key);
  }
  ChannelState state() const override { return channelState(host_.session().state()); }
  const Error& error() const override { return host_.session().error(); }
  std::string describePeer() const override { return "a simulated peer"; }
  ChannelCounters counters() const override { return host_.session().counters(); }
  void close(bool abort) override {
    observer_ = nullptr;
    host_.operate([abort](Session& session, TimePoint now) { session.close(now, abort); });
  }

 private:
  // A host that is just resuming does it a moment later, in the same instant.
  template <typename Operation>
  Status post(const Operation& operation) {
    const auto status = std::make_shared<Status>();
    host_.operate([operation, status](Session& session, TimePoint) { *status = operation(session); });
    return *status;
  }

  template <typename Operation>
  bool cancel(const Operation& operation) {
    const auto cancelled = std::make_shared<bool>(false);
    host_.operate([operation, cancelled](Session& session, TimePoint) { *cancelled = operation(session); });
    return *cancelled;
  }

  void onEvent(const SessionEvent& event) {
    if (observer_ == nullptr) return;
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
        if (event.state == SessionState::kEstablished) observer_->onStateChange(ChannelState::kConnected);
        // Told last: an observer that learns of a message may receive it, and that receive must complete first.
        if (event.state != SessionState::kEstablished)
          simulation_.after(Duration{0}, [this, alive = alive_] {
            if (*alive && observer_ != nullptr) tellEnd();
          });
        break;
    }
    afterEvents_();
  }

  void tellEnd() {
    observer_->onStateChange(state());
    afterEvents_();
  }

  Simulation& simulation_;
  Host& host_;
  ChannelObserver* observer_;
  const std::function<void()> afterEvents_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

ProgressEngine& SimulatedTransport::progress() {
  GLOO_BYPASS_CHECK(!"a simulated transport has no progress engine");
  std::abort();
}

Result<std::unique_ptr<MessageChannel>> SimulatedTransport::openChannel(const ChannelOptions& options,
                                                                        ChannelObserver* observer) {
  Host* const host = hosts_[static_cast<std::size_t>(options.peerRank)];
  return std::unique_ptr<MessageChannel>(
      std::make_unique<SimulatedChannel>(simulation_, *host, observer, afterEvents_));
}

}  // namespace gloo_bypass::sim
