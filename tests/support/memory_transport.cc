#include "tests/support/memory_transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/memory_channel.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::test {
namespace {

// Where other threads leave parcels for a transport.
class Inbox {
 public:
  void put(Parcel parcel) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (dead_) return;
    parcels_.push_back(std::move(parcel));
    filled_.store(true, std::memory_order_release);
    condition_.notify_one();
  }

  // Moves the arrived parcels to the end of `out`.
  void take(std::deque<Parcel>& out) {
    if (!filled_.load(std::memory_order_acquire)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (paused_) return;
    for (Parcel& parcel : parcels_) out.push_back(std::move(parcel));
    parcels_.clear();
    filled_.store(false, std::memory_order_relaxed);
  }

  void setPaused(bool paused) {
    std::lock_guard<std::mutex> lock(mutex_);
    paused_ = paused;
    condition_.notify_one();
  }

  void kill() {
    std::lock_guard<std::mutex> lock(mutex_);
    dead_ = true;
    parcels_.clear();
  }

  void block(Duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    condition_.wait_for(lock, timeout, [this] { return woken_ || (!paused_ && !parcels_.empty()); });
    woken_ = false;
  }

  void wake() {
    std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
    condition_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<Parcel> parcels_;
  std::atomic<bool> filled_{false};
  bool paused_ = false, dead_ = false, woken_ = false;
};

}  // namespace

struct MemoryFabric::State {
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Inbox>> inboxes;
  std::uint64_t nextTransport = 1;

  std::shared_ptr<Inbox> find(std::uint64_t transport) {
    std::lock_guard<std::mutex> lock(mutex);
    const auto it = inboxes.find(transport);
    return it == inboxes.end() ? nullptr : it->second;
  }
};

class MemoryTransport final : public Transport, private Pollable, public ParcelSender {
 public:
  MemoryTransport(std::shared_ptr<MemoryFabric> fabric, std::uint64_t id, std::shared_ptr<Inbox> inbox,
                  const MemoryTransportOptions& options)
      : fabric_(std::move(fabric)),
        id_(id),
        inbox_(std::move(inbox)),
        options_(options),
        progress_(*this, ProgressOptions{.spin = options.spin}) {}

  ~MemoryTransport() override {
    std::lock_guard<std::mutex> lock(fabric_->state_->mutex);
    fabric_->state_->inboxes.erase(id_);
  }

  std::uint64_t id() const { return id_; }
  ProgressEngine& progress() override { return progress_; }
  std::string describe() const override { return "memory transport " + std::to_string(id_); }
  TransportReport report() const override { return {}; }

  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& /*options*/,
                                                      ChannelObserver* observer) override {
    const std::uint64_t channelId = nextChannel_++;
    auto channel = std::make_unique<MemoryChannel>(*this, id_, channelId, observer);
    channels_[channelId] = channel.get();
    return std::unique_ptr<MessageChannel>(std::move(channel));
  }

 private:
  void deliver(std::uint64_t transport, Parcel parcel) override {
    if (options_.delay > Duration::zero()) parcel.due = monotonicNow() + options_.delay;
    const std::shared_ptr<Inbox> inbox = transport == id_ ? inbox_ : fabric_->state_->find(transport);
    if (inbox != nullptr) inbox->put(std::move(parcel));
  }
  void forget(std::uint64_t channel) override { channels_.erase(channel); }
  std::size_t rendezvousBytes() const override { return options_.rendezvousBytes; }
  const std::string& dialect() const override { return options_.dialect; }
  Duration delay() const override { return options_.delay; }

  bool poll(TimePoint now) noexcept override {
    inbox_->take(waiting_);
    bool worked = false;
    while (!waiting_.empty() && waiting_.front().due <= now) {
      Parcel parcel = std::move(waiting_.front());
      waiting_.pop_front();
      worked = true;
      handle(parcel);
    }
    return worked;
  }

  void handle(Parcel& parcel) {
    if (parcel.type == ParcelType::kGone || parcel.type == ParcelType::kCorrupt) {
      const bool gone = parcel.type == ParcelType::kGone;
      std::vector<MemoryChannel*> hit;
      for (auto& [id, channel] : channels_) {
        if (channel->remoteTransport() == parcel.fromTransport) hit.push_back(channel);
      }
      for (MemoryChannel* channel : hit) {
        channel->fail(gone ? ErrorCode::kPeerVanished : ErrorCode::kPeerViolatedProtocol,
                      gone ? "the peer's process is gone" : "nonsense from the peer", /*tellPeer=*/!gone);
      }
      return;
    }
    const auto it = channels_.find(parcel.toChannel);
    if (it != channels_.end()) it->second->receive(parcel);
  }

  void flush(TimePoint) noexcept override {}
  TimePoint nextDeadline() const noexcept override { return waiting_.empty() ? kNever : waiting_.front().due; }
  void armWakeup() noexcept override {}
  void disarmWakeup() noexcept override {}
  void block(Duration timeout) noexcept override { inbox_->block(timeout); }
  void wake() noexcept override { inbox_->wake(); }

  const std::shared_ptr<MemoryFabric> fabric_;
  const std::uint64_t id_;
  const std::shared_ptr<Inbox> inbox_;
  const MemoryTransportOptions options_;
  std::uint64_t nextChannel_ = 1;
  std::unordered_map<std::uint64_t, MemoryChannel*> channels_;
  std::deque<Parcel> waiting_;  // received, not due yet
  ProgressEngine progress_;     // last: its thread polls the rest
};

namespace {

std::uint64_t idOf(const Transport& transport) { return dynamic_cast<const MemoryTransport&>(transport).id(); }

}  // namespace

MemoryFabric::MemoryFabric() : state_(std::make_unique<State>()) {}
MemoryFabric::~MemoryFabric() = default;

std::shared_ptr<MemoryFabric> MemoryFabric::make() { return std::shared_ptr<MemoryFabric>(new MemoryFabric); }

std::shared_ptr<Transport> MemoryFabric::makeTransport(const MemoryTransportOptions& options) {
  auto inbox = std::make_shared<Inbox>();
  std::uint64_t id = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    id = state_->nextTransport++;
    state_->inboxes[id] = inbox;
  }
  return std::make_shared<MemoryTransport>(shared_from_this(), id, std::move(inbox), options);
}

void MemoryFabric::setPaused(const Transport& transport, bool paused) {
  if (auto inbox = state_->find(idOf(transport))) inbox->setPaused(paused);
}

void MemoryFabric::vanish(const Transport& transport) {
  const std::uint64_t id = idOf(transport);
  if (auto inbox = state_->find(id)) inbox->kill();
  Parcel gone;
  gone.type = ParcelType::kGone;
  gone.fromTransport = id;
  std::lock_guard<std::mutex> lock(state_->mutex);
  for (auto& [other, inbox] : state_->inboxes) {
    if (other != id) inbox->put(gone);
  }
}

void MemoryFabric::corrupt(const Transport& transport, const Transport& peer) {
  Parcel nonsense;
  nonsense.type = ParcelType::kCorrupt;
  nonsense.fromTransport = idOf(peer);
  if (auto inbox = state_->find(idOf(transport))) inbox->put(std::move(nonsense));
}

}  // namespace gloo_bypass::test
