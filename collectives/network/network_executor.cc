#include "collectives/network/network_executor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "collectives/interruption.h"
#include "collectives/network/mesh.h"
#include "collectives/network/network_operations.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {

// Waits for what NetworkOperations does.
class NetworkExecutor::Impl {
 public:
  Impl(const NetworkOptions& options, std::shared_ptr<Transport> transport)
      : rank_(options.rank),
        size_(options.size),
        times_{.connect = options.timeout, .silence = options.silence},
        transport_(std::move(transport)),
        progress_(transport_->progress()),
        operations_(options.rank, options.size, options.hostOf, options.choices) {}
  ~Impl() {
    progress_.exclusive([this] { operations_.leave(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status connect(Rendezvous& rendezvous) {
    return connectMesh(rank_, times_, *transport_, rendezvous, operations_.peers());
  }

  // An empty subset: all ranks, under the next number.
  Status run(const Call& call, const Subset& subset, TimePoint deadline) {
    try {
      return runToTheEnd(call, subset, deadline);
    } catch (...) {
      // The caller's buffers go back to it. Nobody asks for an outcome any more.
      progress_.exclusive([this] {
        operations_.abort();
        operations_.cancel();
      });
      throw;
    }
  }

  Status runToTheEnd(const Call& call, const Subset& subset, TimePoint deadline) {
    const TimePoint began = monotonicNow();
    bool begun = false, underWay = false;
    progress_.exclusive([&] {
      begun = operations_.begin(call, subset.ranks, subset.number);
      underWay = begun || !operations_.idle();
    });
    if (!begun) return underWay ? withdraw() : *operations_.failure();
    const auto settled = [this] {
      operations_.advance();
      return operations_.settled();
    };
    const TimePoint isLong = began + NetworkOperations::kLongWait;
    if (!waitUntil(settled, std::min(deadline, isLong)) && isLong < deadline) {
      progress_.exclusive([this] { operations_.tellWhatIsCalled(); });
      (void)waitUntil(settled, deadline);
    }
    Status outcome;
    progress_.exclusive([&] {
      operations_.timeOut(call, monotonicNow() - began);
      outcome = operations_.outcome();
    });
    return outcome.ok() ? outcome : withdraw();
  }

  void announce(const Call& call) {
    progress_.exclusive([&] { operations_.announce(call); });
  }

  void abort() noexcept {
    progress_.exclusive([this] { operations_.abort(); });
  }

  void end(const Error& error, std::uint64_t number) {
    progress_.exclusive([&] { operations_.fail(error, number); });
    (void)withdraw();
  }

  Status failure(std::uint64_t number) const { return operations_.failure(number); }

  Status failureWithin(Duration patience) {
    (void)progress_.waitUntil([this] { return operations_.failure().has_value(); }, monotonicNow() + patience);
    return failure(std::numeric_limits<std::uint64_t>::max() - 1);
  }

  template <typename Post>
  void withMailbox(const Done& done, int peer, Post&& post) {
    progress_.exclusive([&] {
      Mailbox* const mailbox = operations_.mailbox();
      if (mailbox == nullptr) return done(*operations_.failure(), peer);
      post(*mailbox);
    });
  }

  bool wait(const std::function<bool()>& reached, TimePoint deadline) { return progress_.waitUntil(reached, deadline); }
  Duration shortestPath(std::span<const int> ranks) const {
    Duration shortest = Duration::max();
    progress_.exclusive([&] {
      for (const int rank : ranks) {
        const auto path = operations_.peers()[static_cast<std::size_t>(rank)]->channel().path();
        if (path && path->minRtt > Duration{0}) shortest = std::min(shortest, path->minRtt);
      }
    });
    return shortest;
  }
  std::string describe() const { return fmt::format("{} ranks over {}", size_, transport_->describe()); }

 private:
  // Aborts if the program wants this thread back.
  bool waitUntil(const std::function<bool()>& ended, TimePoint deadline) {
    return waitInterruptibly(progress_, ended, deadline, [this] { abort(); });
  }

  // After a failure: lets the word of it leave, then takes the caller's buffers back.
  Status withdraw() {
    (void)progress_.waitUntil([this] { return operations_.wordsHaveLeft(); },
                              monotonicNow() + NetworkOperations::kLastWords);
    Status outcome;
    progress_.exclusive([&] {
      operations_.cancel();
      outcome = *operations_.failure();
    });
    return outcome;
  }

  const int rank_, size_;
  const MeshTimes times_;
  const std::shared_ptr<Transport> transport_;
  ProgressEngine& progress_;
  NetworkOperations operations_;
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

Status NetworkExecutor::run(const Call& call, TimePoint deadline) { return impl_->run(call, {}, deadline); }
void NetworkExecutor::announce(const Call& call) noexcept { impl_->announce(call); }
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

Duration NetworkExecutor::shortestPath(std::span<const int> ranks) const { return impl_->shortestPath(ranks); }
std::string NetworkExecutor::describe() const { return impl_->describe(); }

}  // namespace gloo_bypass::collectives
