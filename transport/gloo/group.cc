#include "transport/gloo/group.h"

#include <algorithm>
#include <utility>

namespace gloo_bypass::adapter {
namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

Group::Group(std::shared_ptr<Transport> transport, int rank, int size)
    : transport_(std::move(transport)),
      progress_(transport_->progress()),
      latencies_(transport_->latencies()),
      rank_(rank),
      byRank_(static_cast<std::size_t>(size), nullptr) {}

Group::~Group() {
  addressExchange_.reset();
  exclusive([this] {
    for (Connection& connection : connections_) connection.close("dropped its connection");
  });
}

Connection* Group::connection(int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < byRank_.size() ? byRank_[static_cast<std::size_t>(rank)]
                                                                      : nullptr;
}

Connection& Group::addConnection(int peerRank, std::chrono::milliseconds timeout, ConnectMode mode) {
  Connection& connection = connections_.emplace_back(*this, peerRank, timeout, mode);
  byRank_.at(static_cast<std::size_t>(peerRank)) = &connection;
  return connection;
}

void Group::connectThrough(std::shared_ptr<gloo_version::ContextStore> store) {
  addressExchange_ = std::make_unique<AddressExchange>(*this, std::move(store));
}

Failure Group::receiveFromAny(BufferState& buffer, std::uint64_t slot, std::byte* data, std::size_t length,
                              std::vector<int> sources) {
  for (const int rank : sources) {
    if (Connection* source = connection(rank)) (void)source->wake();
  }
  while (Connection* source = longestUnmatched(sources, slot)) {
    const bool wasThere = source->failure() == nullptr;
    Failure failure = source->receive(buffer, slot, data, length);
    // The others may still have one if this message is gone with its sender. Else it does not fit.
    if (!failure || wasThere || source->oldestUnmatched(slot)) return failure;
  }
  if (Failure failure = failureOfSources(sources)) return failure;
  Operation* operation = operations_.acquire(buffer, Direction::kReceive);
  operation->key = {MessageKind::kUnbound, slot};
  operation->data = data;
  operation->length = length;
  operation->sources = std::move(sources);
  buffer.of(Direction::kReceive).pending++;
  receivesFromAny_.append(operation->byPlace);
  return nullptr;
}

Connection* Group::longestUnmatched(const std::vector<int>& sources, std::uint64_t slot) const {
  Connection* longest = nullptr;
  TimePoint since = kNever;
  for (const int rank : sources) {
    Connection* source = connection(rank);
    const auto arrived = source == nullptr ? std::nullopt : source->oldestUnmatched(slot);
    if (!arrived || *arrived >= since) continue;
    longest = source;
    since = *arrived;
  }
  return longest;
}

void Group::announced(Connection& connection, std::uint64_t slot) {
  if (!connection.oldestUnmatched(slot)) return;
  for (Operation* o = receivesFromAny_.next(); o != nullptr; o = o->byPlace.next()) {
    if (o->key.tag != slot || !contains(o->sources, connection.peerRank)) continue;
    o->byPlace.unlink();
    connection.receiveOrFail(o);
    return;
  }
}

std::uint64_t Group::expose(std::byte* data, std::size_t size) {
  for (Connection* peer : byRank_) {
    if (peer != nullptr) (void)peer->wake();
  }
  return exposedMemory_.expose(data, size);
}

void Group::conceal(std::uint64_t region, std::chrono::milliseconds linger) {
  bool inUse = false;
  exclusive([&] {
    exposedMemory_.conceal(region);
    inUse = exposedMemory_.inUse(region);
  });
  if (inUse) {
    auto calm = [&] { return !exposedMemory_.inUse(region); };
    (void)progress_.waitUntil(std::ref(calm), monotonicNow() + linger);
  }
  exclusive([&] {
    for (Connection& connection : connections_) connection.conceal(region);
    exposedMemory_.forget(region);
  });
}

void Group::cancel(Operation* operation) {
  if (operation->connection != nullptr) {
    operation->connection->cancel(operation);
    return;
  }
  operation->buffer->of(Direction::kReceive).pending--;
  operations_.release(operation);
}

Failure Group::failureOfSources(const std::vector<int>& sources) const {
  Failure failure;
  for (const int rank : sources) {
    const Connection* source = connection(rank);
    if (source == nullptr) continue;  // ourselves
    if (!source->failure()) return nullptr;
    failure = source->failure();
  }
  return failure;
}

void Group::connectionFailed(const Connection& connection) {
  for (Operation* o = receivesFromAny_.next(); o != nullptr;) {
    Operation* following = o->byPlace.next();
    if (contains(o->sources, connection.peerRank)) {
      if (Failure failure = failureOfSources(o->sources)) {
        o->buffer->of(Direction::kReceive).pending--;
        o->buffer->fail(failure, o->key);
        operations_.release(o);
      }
    }
    o = following;
  }
}

void Group::failAll(const Failure& failure) {
  for (Connection& connection : connections_) connection.abort(failure);
}

void Group::heardOfFailedCollective(const std::string& cause) {
  if (!heardCause_) heardCause_ = makeFailure(cause);
}

void Group::collectiveFailed(const Failure& why) {
  if (failedCollective_) return;
  failedCollective_ = heardCause_ ? heardCause_ : why;
  for (Connection& connection : connections_) connection.tellCollectiveFailed();
}

}  // namespace gloo_bypass::adapter
