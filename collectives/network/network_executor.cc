#include "collectives/network/network_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/interruption.h"
#include "collectives/network/mailbox.h"
#include "collectives/network/mesh.h"
#include "collectives/network/operation_run.h"
#include "collectives/network/outgoing_copies.h"
#include "collectives/network/peer.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

// From here on a wait is long: ranks compare what they have called.
constexpr Duration kLongWait = std::chrono::milliseconds(200);
// How long a failing rank waits for its word to leave, before it takes its buffers back.
constexpr Duration kLastWords = std::chrono::milliseconds(50);
// Operations that a peer may still ask about.
constexpr std::size_t kRemembered = 64;
// The number of no operation.
constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
// Short messages under way to one peer.
constexpr std::size_t kCopiesAPeer = 8;

// The same in every rank: of counts that all know.
std::size_t bytesOf(Call call, int size) {
  call.whole = nullptr;
  std::size_t elements = static_cast<std::size_t>(describe(call).count);
  if (call.kind == Kind::kAllGather) {
    elements = 0;
    for (const Block& block : call.outputs) elements += block.count;
  } else if (call.kind == Kind::kGather || call.kind == Kind::kScatter) {
    elements *= static_cast<std::size_t>(size);
  }
  return elements * sizeOf(call.type);
}

}  // namespace

class NetworkExecutor::Impl final : private PeerEvents {
 public:
  Impl(NetworkOptions options, std::shared_ptr<Transport> transport)
      : options_(std::move(options)),
        transport_(std::move(transport)),
        progress_(transport_->progress()),
        peers_(makePeers()),
        copies_(kCopiesAPeer * peers_.size()),
        operation_(options_.rank, peers_, copies_),
        mailbox_(options_.rank, peers_) {}

  ~Impl() {
    progress_.exclusive([this] {
      mailbox_.fail(
          {ErrorScope::kDevice, ErrorCode::kCancelled, fmt::format("rank {} has left the group", options_.rank)});
      for (const auto& peer : peers_) {
        if (peer != nullptr) peer->leave();
      }
    });
  }

  Status connect(Rendezvous& rendezvous) {
    return connectMesh(options_.rank, options_.timeout, *transport_, rendezvous, peers_);
  }

  Status run(const Call& call, TimePoint deadline) { return run(call, {}, deadline); }

  // An empty subset: all ranks, under the next number.
  Status run(const Call& call, const Subset& subset, TimePoint deadline) {
    const TimePoint began = monotonicNow();
    bool begun = false;
    progress_.exclusive([&] { begun = begin(call, subset); });
    if (!begun) return *failure_;
    const auto ended = [this] {
      advance();
      return isLost() || operation_.over();
    };
    if (!waitUntil(ended, std::min(deadline, began + kLongWait)) && began + kLongWait < deadline) {
      progress_.exclusive([this] { tellWhatIsCalled(); });
      (void)waitUntil(ended, deadline);
    }
    Status outcome;
    progress_.exclusive([&] {
      if (!isLost() && !operation_.over()) fail(timedOut(call, monotonicNow() - began));
      // A failure that came after its end is the next operation's.
      if (!operation_.over()) outcome = *failure_;
    });
    return outcome.ok() ? outcome : withdraw();
  }

  void abort() noexcept {
    progress_.exclusive([this] {
      fail({ErrorScope::kDevice, ErrorCode::kCancelled, fmt::format("rank {} has aborted this group", options_.rank)});
    });
  }

  void end(const Error& error, std::uint64_t number) {
    progress_.exclusive([&] { fail(error, number); });
    (void)withdraw();
  }

  Status failure(std::uint64_t number) const {
    if (number < firstLost_.load(std::memory_order_acquire)) return {};
    return *failure_;  // constant from then on
  }

  Status failureWithin(Duration patience) {
    (void)progress_.waitUntil([this] { return failure_.has_value(); }, monotonicNow() + patience);
    return failure(kNone - 1);
  }

  template <typename Post>
  void withMailbox(const Done& done, int peer, Post&& post) {
    progress_.exclusive([&] {
      if (failure_) return done(*failure_, peer);
      post(mailbox_);
    });
  }

  bool wait(const std::function<bool()>& reached, TimePoint deadline) { return progress_.waitUntil(reached, deadline); }
  std::string describe() const { return fmt::format("{} ranks over {}", options_.size, transport_->describe()); }

 private:
  std::vector<std::unique_ptr<Peer>> makePeers() {
    PeerEvents& events = *this;
    std::vector<std::unique_ptr<Peer>> peers;
    for (int rank = 0; rank < options_.size; ++rank) {
      peers.push_back(rank == options_.rank ? nullptr : std::make_unique<Peer>(options_.rank, rank, events));
    }
    return peers;
  }

  // Aborts if the program wants this thread back.
  bool waitUntil(const std::function<bool()>& ended, TimePoint deadline) {
    InterruptibleWait wait;
    for (TimePoint now = monotonicNow();; now = monotonicNow()) {
      if (wait.isInterrupted(now)) abort();
      const TimePoint until = std::min(deadline, now + InterruptibleWait::kAskEvery);
      if (progress_.waitUntil(ended, until)) return true;
      if (until == deadline) return false;
    }
  }

  // ---- With exclusive access, all below.

  // Whether the operation under way, or the last one, is lost.
  bool isLost() const { return operations_ >= firstLost_; }

  // False: this operation is lost.
  bool begin(const Call& call, const Subset& subset) {
    const bool all = subset.ranks.empty();
    const auto own = std::find(subset.ranks.begin(), subset.ranks.end(), options_.rank);
    const int place = all ? options_.rank : static_cast<int>(own - subset.ranks.begin());
    const int size = all ? options_.size : static_cast<int>(subset.ranks.size());
    const std::uint64_t number = all ? operations_ + 1 : subset.number;
    if (number >= firstLost_) return false;
    operations_ = number;
    called_[operations_ % kRemembered] = {operations_, wordsOf(collectives::describe(call))};
    const Choice choice = options_.choices.choose(
        {.kind = call.kind, .bytes = bytesOf(call, size), .ranks = size, .sharedHosts = all && sharedHosts_});
    failIf(operation_.begin(call, {.number = operations_,
                                   .choice = choice,
                                   .schedule = &scheduleFor(call, choice, subset.ranks, {place, size, call.root}),
                                   .place = place,
                                   .size = size}));
    return true;
  }

  const Schedule& scheduleFor(const Call& call, const Choice& choice, std::span<const int> ranks, Place place) {
    auto key = std::tuple(call.kind, choice.algorithm, call.root, std::vector<int>(ranks.begin(), ranks.end()));
    const auto known = schedules_.find(key);
    if (known != schedules_.end()) return known->second;
    if (ranks.empty()) place.hostOf = options_.hostOf;
    Schedule schedule = findAlgorithm(call.kind, choice.algorithm)->make(place);
    if (!ranks.empty()) {
      ScheduleBuilder builder(options_.rank, schedule.parts);
      builder.append(schedule, ranks, 0);
      schedule = std::move(builder).finish();
    }
    return schedules_.emplace(std::move(key), std::move(schedule)).first->second;
  }

  void advance() {
    if (!isLost()) failIf(operation_.advance());
  }

  void failIf(const Status& status) {
    if (!status.ok()) fail(status.error());
  }

  void fail(Error error) { fail(std::move(error), operations_ + (operation_.over() ? 1 : 0)); }

  // For good: operations from `firstLost` on are lost, those before may still end well. The first reason stays; the
  // others hear it.
  void fail(Error error, std::uint64_t firstLost) {
    if (firstLost >= firstLost_) return;
    if (!failure_) failure_ = std::move(error);
    firstLost_.store(firstLost, std::memory_order_release);
    for (const auto& peer : peers_) {
      if (peer == nullptr || peer->ended() != nullptr) continue;
      (void)copies_.send(*peer, controlKey(),
                         encode(ControlMessage{.type = ControlMessage::Type::kFailed,
                                               .code = failure_->code,
                                               .operation = firstLost,
                                               .text = failure_->message}));
    }
    mailbox_.fail(*failure_);
  }

  void tellWhatIsCalled() {
    if (isLost() || operation_.over()) return;
    const Called& now = called_[operations_ % kRemembered];
    const auto bytes = encode(
        ControlMessage{.type = ControlMessage::Type::kCalled, .operation = now.number, .description = now.words});
    for (const auto& peer : peers_) {
      // Without room it is not said: the messages that fill it say the same.
      if (peer != nullptr && peer->ended() == nullptr) (void)copies_.send(*peer, controlKey(), bytes);
    }
  }

  Error timedOut(const Call& call, Duration after) const {
    const std::vector<int> awaited = operation_.awaited();
    return {ErrorScope::kDevice, ErrorCode::kTimedOut,
            fmt::format("rank {} waited {} ms, the timeout of the call, in {} for {}", options_.rank,
                        std::chrono::duration_cast<std::chrono::milliseconds>(after).count(),
                        textOf(collectives::describe(call)), inWords(awaited))};
  }

  // After a failure: lets the word of it leave, then takes the caller's buffers back.
  Status withdraw() {
    (void)progress_.waitUntil([this] { return copies_.idle(); }, monotonicNow() + kLastWords);
    Status outcome;
    progress_.exclusive([&] {
      operation_.cancel();
      outcome = *failure_;
    });
    return outcome;
  }

  void onControl(Peer& peer, const ControlMessage& message) override {
    if (message.type == ControlMessage::Type::kFailed) return onPeerFailed(peer, message);
    peer.lastCall = message;
    const Called& mine = called_[message.operation % kRemembered];
    if (mine.number != message.operation || mine.words == message.description || isLost()) return;
    fail({ErrorScope::kDevice, ErrorCode::kInvalidArgument,
          disagreement(options_.rank, mine.words, peer.rank(), message.description)});
  }

  // A rank that failed in a later operation has done its part of this one.
  void onPeerFailed(const Peer& peer, const ControlMessage& message) {
    const bool aborted = message.code == ErrorCode::kCancelled;
    Error error{ErrorScope::kDevice, aborted ? ErrorCode::kPeerClosed : message.code,
                message.text.empty() ? fmt::format("rank {} has failed", peer.rank()) : message.text};
    fail(std::move(error), message.operation);
  }

  void onProgramMessage(Peer& peer, std::uint32_t tag) override {
    if (!failure_) mailbox_.onAnnounced(peer, tag);
  }

  void onEnded(Peer& peer) override {
    mailbox_.onEnded(peer);
    if (const Error* error = isLost() ? nullptr : operation_.needs(peer)) fail(*error);
  }

  struct Called {
    std::uint64_t number = 0;
    DescriptionWords words;
  };

  const NetworkOptions options_;
  const std::shared_ptr<Transport> transport_;
  ProgressEngine& progress_;
  const std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: this one
  OutgoingCopies copies_;
  OperationRun operation_;
  Mailbox mailbox_;
  const bool sharedHosts_ = shareHosts(options_.hostOf);
  std::map<std::tuple<Kind, Algorithm, int, std::vector<int>>, Schedule> schedules_;
  std::array<Called, kRemembered> called_{};
  std::uint64_t operations_ = 0;  // the number of the last one begun
  std::optional<Error> failure_;
  // The first operation that it ends. Others read it, and then failure_.
  std::atomic<std::uint64_t> firstLost_{kNone};
};

NetworkExecutor::NetworkExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NetworkExecutor::~NetworkExecutor() = default;

Result<std::unique_ptr<NetworkExecutor>> NetworkExecutor::connect(const NetworkOptions& options,
                                                                  std::shared_ptr<Transport> transport,
                                                                  Rendezvous& rendezvous) {
  auto impl = std::make_unique<Impl>(options, std::move(transport));
  if (Status status = impl->connect(rendezvous); !status.ok()) return status.error();
  return std::unique_ptr<NetworkExecutor>(new NetworkExecutor(std::move(impl)));
}

Status NetworkExecutor::run(const Call& call, TimePoint deadline) { return impl_->run(call, deadline); }
void NetworkExecutor::abort() noexcept { impl_->abort(); }
Status NetworkExecutor::runAmong(const Call& call, const Subset& subset, TimePoint deadline) {
  return impl_->run(call, subset, deadline);
}
void NetworkExecutor::end(const Error& error, std::uint64_t number) { impl_->end(error, number); }
Status NetworkExecutor::failure(std::uint64_t number) const { return impl_->failure(number); }
Status NetworkExecutor::failureWithin(Duration patience) { return impl_->failureWithin(patience); }

void NetworkExecutor::send(const Message& message, Done done) {
  impl_->withMailbox(done, message.peer, [&](Mailbox& mailbox) { mailbox.send(message, std::move(done)); });
}

void NetworkExecutor::receive(const Message& message, Done done) {
  impl_->withMailbox(done, message.peer, [&](Mailbox& mailbox) { mailbox.receive(message, std::move(done)); });
}

bool NetworkExecutor::wait(const std::function<bool()>& reached, TimePoint deadline) {
  return impl_->wait(reached, deadline);
}

std::string NetworkExecutor::describe() const { return impl_->describe(); }

}  // namespace gloo_bypass::collectives
